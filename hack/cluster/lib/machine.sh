# shellcheck shell=bash
# What the cluster's programs change on the machine outside the cluster's folder, and
# putting it back: sysctls that a kubelet sets, folders at places that can not be chosen.

KUBELET_SYSCTLS="kernel.panic kernel.panic_on_oops vm.overcommit_memory vm.panic_on_oom kernel.keys.root_maxkeys kernel.keys.root_maxbytes"
FIXED_FOLDERS="/var/lib/kubelet /var/lib/cni /var/lib/containers /var/log/containers /run/containerd /opt/containerd /opt/cni /etc/cni"

# machine_remember: once per cluster, before its first program starts.
machine_remember() {
  local name value
  [ ! -e "$DIR/before" ] || return 0
  {
    for name in $KUBELET_SYSCTLS; do
      value=$(sysctl -n "$name" 2>/dev/null) && echo "sysctl $name $value"
    done
    for name in $FIXED_FOLDERS /run/netns; do [ -e "$name" ] || echo "absent $name"; done
  } >"$DIR/before.new"
  mv "$DIR/before.new" "$DIR/before"
}

# remove_outside_files: ours, at fixed places, whether or not others have files there.
remove_outside_files() {
  local file id address
  # The shims' sockets: the address is in each container's folder.
  for file in "$DIR"/containerd/state/io.containerd.runtime.v2.task/*/*/address; do
    [ -e "$file" ] || continue
    address=$(cat "$file")
    [[ "$address" != unix:///run/containerd/s/* ]] || rm -f "${address#unix://}"
  done
  # The network plugins' results, one per Pod and interface.
  for file in /var/lib/cni/results/modelrollout-*-eth0; do
    [ -e "$file" ] || continue
    id=${file##*/modelrollout-}
    rm -f "$file" "/var/lib/cni/results/cni-loopback-${id%-eth0}-lo"
  done
  for file in /var/log/containers/*; do
    [[ "$(readlink "$file" 2>/dev/null)" != "$DIR/"* ]] || rm -f "$file"
  done
}

machine_restore() {
  local kind name value
  remove_outside_files
  [ -e "$DIR/before" ] || return 0
  while read -r kind name value; do
    [ "$kind" != sysctl ] || sysctl -qw "$name=$value" 2>/dev/null || true
    [ "$kind" = absent ] || continue
    # Only what is known to be made on our behalf, and then empty folders: whoever
    # used the same place meanwhile keeps his files.
    case $name in
      /run/netns)
        [ -n "$(ls -A /run/netns 2>/dev/null)" ] || { umount /run/netns && rmdir /run/netns; } 2>/dev/null || true
        continue
        ;;
      /var/lib/kubelet) rm -rf "$name"/device-plugins/kubelet* ;;
      /var/lib/containers) rm -f "$name/cache/blob-info-cache-v1.boltdb" ;;
      /etc/cni) rm -f "$name/net.d/cni.lock" ;;
    esac
    find "$name" -depth -type d -empty -delete 2>/dev/null || true
  done <"$DIR/before"
}
