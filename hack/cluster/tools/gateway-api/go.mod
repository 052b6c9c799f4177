// Not Go code: the CRDs in this module's config/crd/standard. Don't run go mod tidy here. Versions
// before 1.5 lack tlsroutes, without which Traefik never programs a Gateway.
module gateway-api-crds

go 1.26

require sigs.k8s.io/gateway-api v1.5.1 // indirect
