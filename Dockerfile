# The operator: one static binary and nothing else. `make image` fills dist/ and builds it; by hand:
#
#   RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --target x86_64-unknown-linux-gnu
#   mkdir -p dist && cp target/x86_64-unknown-linux-gnu/release/modelrollout-operator dist/
#   docker build -t modelrollout/operator:0.1.0 .
FROM scratch
LABEL org.opencontainers.image.title="modelrollout-operator" \
      org.opencontainers.image.description="Moves production traffic to a new AI model and its prompt in judged stages, and back at once when the evidence is bad" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY dist/modelrollout-operator /modelrollout-operator
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/modelrollout-operator"]
