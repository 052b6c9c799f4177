# The operator: one static binary and nothing else. The context is a folder that holds it, which hack/build-images fills:
#
#   hack/build-images
#   docker build -f Dockerfile -t modelrollout/operator:0.1.0 dist/operator
FROM scratch
LABEL org.opencontainers.image.title="modelrollout-operator" \
      org.opencontainers.image.description="Moves production traffic to a new AI model and its prompt in judged stages, and back at once when the evidence is bad" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY modelrollout-operator /modelrollout-operator
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/modelrollout-operator"]
