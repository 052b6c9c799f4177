# shellcheck shell=bash
# Images without a registry: built by buildah from "FROM scratch" Dockerfiles, written
# to an archive, imported into the cluster's containerd as localhost/NAME:TAG.

# build_archive STORAGE REF CONTEXT DOCKERFILE ARCHIVE
build_archive() {
  local storage=$1 ref=$2 context=$3 dockerfile=$4 archive=$5 old
  local -a buildah=(buildah --root "$storage/root" --runroot "$storage/run" --storage-driver vfs)
  mkdir -p "$storage"
  old=$("${buildah[@]}" images --quiet "$ref" 2>/dev/null || true)
  "${buildah[@]}" bud --isolation chroot --quiet -f "$dockerfile" -t "$ref" "$context" >/dev/null
  rm -f "$archive"
  # Not compressed: it only goes from one folder of this machine to another.
  "${buildah[@]}" push --quiet --disable-compression "$ref" "oci-archive:$archive:$ref"
  if [ -n "$old" ] && [ "$old" != "$("${buildah[@]}" images --quiet "$ref")" ]; then
    "${buildah[@]}" rmi "$old" >/dev/null 2>&1 || true
  fi
}

import_archive() { ctr_ images import --snapshotter "$(cat "$DIR/snapshotter")" "$1" >/dev/null; }

has_image() { ctr_ images ls -q "name==$1" | grep -q .; }

# system_images: REF, PROGRAM of the images that the cluster itself runs.
system_images() {
  cat <<LIST
localhost/modelrollout-pause:1 pause
localhost/modelrollout-coredns:$COREDNS_VERSION coredns
localhost/modelrollout-traefik:$TRAEFIK_VERSION traefik
localhost/modelrollout-prometheus:$PROMETHEUS_VERSION prometheus
LIST
}

# archive_of PROGRAM: where its image's archive is kept in the cache.
archive_of() {
  case $1 in
    pause) printf '%s/images/pause-%s.tar' "$CACHE" "$(sha256sum <"$HERE/images/pause/pause.c" | cut -c1-12)" ;;
    *) printf '%s/images/%s.tar' "$CACHE" "$(basename "$(part_dir "$1")")" ;;
  esac
}

# build_system_images: into the cache, once per version of each program.
build_system_images() {
  local ref program archive work start
  mkdir -p "$CACHE/images"
  while read -r ref program; do
    archive=$(archive_of "$program")
    [ ! -e "$archive" ] || continue
    start=$(now_ms)
    work=$(mktemp -d "$CACHE/images/work.XXXXXX")
    mkdir "$work/context"
    if [ "$program" = pause ]; then
      gcc -Os -static -s -o "$work/context/pause" "$HERE/images/pause/pause.c"
    else
      cp "$(part_dir "$program")/bin/$program" "$work/context/$program"
    fi
    # A scratch image has no /tmp, and some programs want one.
    mkdir -p "$work/context/tmp"
    printf 'FROM scratch\nCOPY . /\nENTRYPOINT ["/%s"]\n' "$program" >"$work/Dockerfile"
    build_archive "$work/storage" "$ref" "$work/context" "$work/Dockerfile" "$work/image.tar"
    mv "$work/image.tar" "$archive"
    rm -rf "$work"
    say "image $program built in $(since "$start") s"
  done < <(system_images)
}

import_system_images() {
  local ref program
  while read -r ref program; do
    has_image "$ref" || import_archive "$(archive_of "$program")"
  done < <(system_images)
}
