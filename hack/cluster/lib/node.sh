# shellcheck shell=bash
# containerd, kubelet and kube-proxy, inside the node's network namespace.

# render TEMPLATE FILE: fill in @NAME@ of a file under config/.
render() {
  local bridge_dir runc
  bridge_dir=$(cni_dir)
  runc=$(command -v runc)
  sed -e "s|@DIR@|$DIR|g; s|@SOCK@|$SOCK|g; s|@CGROUP@|$CGROUP|g; s|@DNS_IP@|$DNS_IP|g; s|@POD_CIDR@|$POD_CIDR|g" \
    -e "s|@RUNC@|$runc|g; s|@CNI_BIN@|$bridge_dir|g; s|@SNAPSHOTTER@|$(cat "$DIR/snapshotter")|g" \
    "$HERE/config/$1" >"$2.new"
  # Not touched when nothing changed: containerd watches its network configuration.
  if cmp -s "$2.new" "$2"; then rm "$2.new"; else mv "$2.new" "$2"; fi
}

# choose_snapshotter: overlayfs, or plain copies where the folder is itself on an overlay.
choose_snapshotter() {
  local try=$DIR/overlay-test
  mkdir -p "$try"/{lower,upper,work,merged}
  if mount -t overlay overlay -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" "$try/merged" 2>/dev/null; then
    umount "$try/merged"
    echo overlayfs >"$DIR/snapshotter"
  else
    note "overlay mounts do not work below $DIR; images are copied instead, which is slower"
    echo native >"$DIR/snapshotter"
  fi
  rm -rf "$try"
}

node_configure() {
  local root
  mkdir -p "$DIR"/{cni,kubelet,pod-logs}
  [ -e "$DIR/snapshotter" ] || choose_snapshotter
  render containerd.toml.in "$DIR/containerd.toml"
  render kubelet.yaml.in "$DIR/kubelet.yaml"
  render cni.conflist.in "$DIR/cni/10-modelrollout.conflist"
  for root in $(cgroup_roots); do mkdir -p "$root/$CGROUP"; done
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    # v2: a child has only the controllers that its parent hands down.
    for root in /sys/fs/cgroup "/sys/fs/cgroup/$CGROUP"; do
      sed 's/\([a-z]*\)/+\1/g' /sys/fs/cgroup/cgroup.controllers >"$root/cgroup.subtree_control" 2>/dev/null || true
    done
  elif [ -w "/sys/fs/cgroup/cpuset/$CGROUP" ]; then
    # v1: an empty cpuset takes no process.
    cat /sys/fs/cgroup/cpuset/cpuset.cpus >"/sys/fs/cgroup/cpuset/$CGROUP/cpuset.cpus"
    cat /sys/fs/cgroup/cpuset/cpuset.mems >"/sys/fs/cgroup/cpuset/$CGROUP/cpuset.mems"
  fi
}

# node_start NAME COMMAND...: in the node's network namespace (not with ip netns exec,
# which remounts /sys and hides the cgroups).
node_start() {
  local name=$1
  shift
  start "$name" nsenter --net="/run/netns/$NETNS" -- "$@"
}

containerd_start() {
  node_start containerd containerd --config "$DIR/containerd.toml" --log-level warn
}

containerd_ready() { ctr_ version; }

kubelet_start() {
  node_start kubelet "$KUBE_BIN/kubelet" --config "$DIR/kubelet.yaml" --kubeconfig "$PKI/kubelet.kubeconfig" \
    --root-dir "$DIR/kubelet" --cert-dir "$DIR/kubelet/pki" --hostname-override "$NODE_NAME" --node-ip "$NODE_IP"
}

# --conntrack-*=0: those sysctls are the machine's and may not be written from here.
kube_proxy_start() {
  local -a masquerade=()
  bridge_netfilter || masquerade=(--masquerade-all)
  node_start kube-proxy "$KUBE_BIN/kube-proxy" --kubeconfig "$PKI/kube-proxy.kubeconfig" --hostname-override "$NODE_NAME" \
    --proxy-mode nftables --cluster-cidr "$POD_CIDR" "${masquerade[@]}" \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0s --conntrack-tcp-timeout-close-wait=0s \
    --oom-score-adj=0 --nodeport-addresses "$NODE_IP/32" --metrics-bind-address 127.0.0.1:10249
}

node_ready() { kube wait --for=condition=Ready "node/$NODE_NAME" --timeout=1s; }
