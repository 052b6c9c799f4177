# shellcheck shell=bash
# The cluster's certificates (one CA, by openssl) and the kubeconfig files made of them.

PKI=$DIR/pki

# cert NAME SUBJECT [SANS]: a key and a certificate signed by our CA.
cert() {
  local name=$1 subject=$2 sans=${3:-}
  [ ! -e "$PKI/$name.crt" ] || return 0
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$subject" \
    -keyout "$PKI/$name.key" -out "$PKI/$name.csr" 2>/dev/null
  {
    echo "basicConstraints=CA:FALSE"
    echo "keyUsage=digitalSignature"
    echo "extendedKeyUsage=clientAuth,serverAuth"
    [ -z "$sans" ] || echo "subjectAltName=$sans"
  } >"$PKI/$name.ext"
  openssl x509 -req -in "$PKI/$name.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" \
    -set_serial "0x$(openssl rand -hex 8)" -days 365 -extfile "$PKI/$name.ext" -out "$PKI/$name.crt.new" 2>/dev/null
  mv "$PKI/$name.crt.new" "$PKI/$name.crt"
}

# kubeconfig FILE CERT SERVER: everything embedded, so that the file can be copied.
kubeconfig() {
  local file=$1 name=$2 server=$3
  ( umask 077
    cat >"$file.new" <<YAML
apiVersion: v1
kind: Config
current-context: modelrollout
clusters:
- name: modelrollout
  cluster: {server: "$server", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}
contexts:
- name: modelrollout
  context: {cluster: modelrollout, user: $name}
users:
- name: $name
  user: {client-certificate-data: $(base64 -w0 "$PKI/$name.crt"), client-key-data: $(base64 -w0 "$PKI/$name.key")}
YAML
  )
  mv "$file.new" "$file"
}

pki_up() {
  local loopback=https://127.0.0.1:6443 from_node=https://$HOST_IP:6443
  (umask 077 && mkdir -p "$PKI")
  if [ ! -e "$PKI/ca.crt" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=modelrollout-cluster \
      -addext keyUsage=critical,digitalSignature,keyCertSign,cRLSign -keyout "$PKI/ca.key" -out "$PKI/ca.crt.new" 2>/dev/null
    mv "$PKI/ca.crt.new" "$PKI/ca.crt"
  fi
  cert apiserver /CN=kube-apiserver \
    "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$API_SERVICE_IP,IP:$HOST_IP"
  cert admin /O=system:masters/CN=admin
  cert apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  cert kube-controller-manager /CN=system:kube-controller-manager
  cert kube-scheduler /CN=system:kube-scheduler
  cert kubelet "/O=system:nodes/CN=system:node:$NODE_NAME" "DNS:$NODE_NAME,IP:$NODE_IP"
  cert kube-proxy /CN=system:kube-proxy
  if [ ! -e "$PKI/service-accounts.key" ]; then
    openssl ecparam -genkey -name prime256v1 -noout -out "$PKI/service-accounts.key.new" 2>/dev/null
    mv "$PKI/service-accounts.key.new" "$PKI/service-accounts.key"
  fi
  kubeconfig "$ADMIN" admin "$loopback"
  kubeconfig "$PKI/kube-controller-manager.kubeconfig" kube-controller-manager "$loopback"
  kubeconfig "$PKI/kube-scheduler.kubeconfig" kube-scheduler "$loopback"
  kubeconfig "$PKI/kubelet.kubeconfig" kubelet "$from_node"
  kubeconfig "$PKI/kube-proxy.kubeconfig" kube-proxy "$from_node"
}
