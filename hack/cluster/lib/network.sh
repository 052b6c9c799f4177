# shellcheck shell=bash
# The node's network namespace: one veth pair to the machine, routes to Pods and
# Services from the machine, and no route from the node to anywhere else.

network_up() {
  [ -e "/run/netns/$NETNS" ] || ip netns add "$NETNS"
  if ! ip link show "$VETH_HOST" >/dev/null 2>&1; then
    ip link add "$VETH_HOST" type veth peer name "$VETH_NODE" netns "$NETNS"
  fi
  ip addr replace "$HOST_IP/30" dev "$VETH_HOST"
  ip link set "$VETH_HOST" up
  in_node ip link set lo up
  in_node ip addr replace "$NODE_IP/30" dev "$VETH_NODE"
  in_node ip link set "$VETH_NODE" up

  in_node sysctl -qw net.ipv4.ip_forward=1
  # A Service's address needs some route before kube-proxy rewrites it.
  in_node ip route replace "$SERVICE_CIDR" dev "$VETH_NODE"
  # Test programs on the machine reach Pods and Services through the node.
  ip route replace "$POD_CIDR" via "$NODE_IP" dev "$VETH_HOST"
  ip route replace "$SERVICE_CIDR" via "$NODE_IP" dev "$VETH_HOST"
  if in_node ip route show default | grep -q .; then
    die "the node's namespace has a default route, and must not have one"
  fi
}

# Two Pods on one bridge talk past the node's rules unless bridged packets are shown
# to them; without that, answers of a Service would come from the wrong address.
bridge_netfilter() {
  modprobe br_netfilter 2>/dev/null || true
  in_node sysctl -qw net.bridge.bridge-nf-call-iptables=1 2>/dev/null
}

network_down() {
  ip link del "$VETH_HOST" 2>/dev/null || true      # its peer and the routes go with it
  if [ -e "/run/netns/$NETNS" ]; then
    ip netns del "$NETNS" 2>/dev/null || {
      umount -l "/run/netns/$NETNS" 2>/dev/null || true
      rm -f "/run/netns/$NETNS"
    }
  fi
}
