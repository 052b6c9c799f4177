# shellcheck shell=bash
# What runs in the cluster from the start: CoreDNS, the Gateway API's CRDs, Traefik, Prometheus.

# manifests: all of manifests/ with its placeholders filled in.
manifests() {
  local file
  for file in "$HERE"/manifests/*.yaml; do
    echo "---"
    sed -e "s|@NODE_IP@|$NODE_IP|g; s|@DNS_IP@|$DNS_IP|g; s|@PROMETHEUS_IP@|$PROMETHEUS_IP|g" \
      -e "s|@COREDNS_VERSION@|$COREDNS_VERSION|g; s|@TRAEFIK_VERSION@|$TRAEFIK_VERSION|g; s|@PROMETHEUS_VERSION@|$PROMETHEUS_VERSION|g" "$file"
  done
}

apply() { kube apply --server-side --force-conflicts --field-manager=hack-cluster -f "$@" >"$LOGS/apply.log" 2>&1; }

addons_apply() {
  apply "$(part_dir gateway-api)/crds" || {
    show_log apply
    die "the Gateway API's CRDs could not be applied"
  }
  kube wait --for=condition=Established --timeout=60s -f "$(part_dir gateway-api)/crds" >"$LOGS/apply.log" 2>&1 || {
    show_log apply
    die "the Gateway API's CRDs were not accepted within 60 s"
  }
  manifests | apply - || {
    show_log apply
    die "the manifests in hack/cluster/manifests could not be applied"
  }
}

# addon_wait NAMESPACE DEPLOYMENT
addon_wait() {
  kube -n "$1" rollout status "deployment/$2" --timeout=180s >"$LOGS/rollout.log" 2>&1 && return 0
  show_log rollout
  kube -n "$1" get pods -o wide >&2 || true
  kube -n "$1" describe pods -l "app=$2" 2>&1 | sed -n '/^Events/,$p' | tail -n 15 >&2 || true
  kube -n "$1" logs "deployment/$2" --tail=20 >&2 || true
  show_log kubelet
  die "the Deployment $2 in namespace $1 was not ready within 180 s (above: its Pods, events and logs)"
}

addons_wait() {
  addon_wait kube-system coredns
  addon_wait traefik traefik
  addon_wait monitoring prometheus
}
