# shellcheck shell=bash
# etcd, API server, controller manager and scheduler, in the machine's own network
# namespace: all on loopback but the API server, which the node reaches at $HOST_IP.

api_ready() { [ "$(kube get --raw /readyz 2>/dev/null)" = ok ]; }

etcd_start() {
  start etcd "$KUBE_BIN/etcd" --name test --data-dir "$DIR/etcd" --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster test=http://127.0.0.1:2380 \
    --auto-compaction-mode periodic --auto-compaction-retention 10m --log-level warn
}

# --kubelet-preferred-address-types: kubectl logs and exec would look up the node's name otherwise.
# --advertise-address: what the Service "kubernetes" leads Pods to.
apiserver_start() {
  start kube-apiserver "$KUBE_BIN/kube-apiserver" \
    --etcd-servers http://127.0.0.1:2379 \
    --bind-address 0.0.0.0 --secure-port 6443 --advertise-address "$HOST_IP" \
    --service-cluster-ip-range "$SERVICE_CIDR" \
    --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key" \
    --client-ca-file "$PKI/ca.crt" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$PKI/service-accounts.key" --service-account-signing-key-file "$PKI/service-accounts.key" \
    --kubelet-client-certificate "$PKI/apiserver-kubelet-client.crt" --kubelet-client-key "$PKI/apiserver-kubelet-client.key" \
    --kubelet-preferred-address-types InternalIP \
    --max-requests-inflight 1200 --max-mutating-requests-inflight 600 \
    --audit-policy-file "$DIR/audit-policy.yaml" --audit-log-path "$DIR/audit.log" \
    --audit-log-maxsize 500 --audit-log-maxbackup 1 \
    --profiling=false
}

# Both exit if they come up before the API server has made its first RBAC rules.
controllers_start() {
  start kube-controller-manager "$KUBE_BIN/kube-controller-manager" \
    --kubeconfig "$PKI/kube-controller-manager.kubeconfig" --bind-address 127.0.0.1 \
    --leader-elect=false --use-service-account-credentials=true \
    --root-ca-file "$PKI/ca.crt" --service-account-private-key-file "$PKI/service-accounts.key" \
    --cluster-signing-cert-file "$PKI/ca.crt" --cluster-signing-key-file "$PKI/ca.key" \
    --kube-api-qps 200 --kube-api-burst 400 --concurrent-gc-syncs 20
  start kube-scheduler "$KUBE_BIN/kube-scheduler" \
    --kubeconfig "$PKI/kube-scheduler.kubeconfig" --bind-address 127.0.0.1 \
    --leader-elect=false --kube-api-qps 200 --kube-api-burst 400
}

control_plane_up() {
  cp "$HERE/config/audit-policy.yaml" "$DIR/audit-policy.yaml"
  etcd_start
  apiserver_start
  wait_for 120 kube-apiserver "the API server's /readyz" api_ready
  controllers_start
}
