// Package apiserver connects the programs of one node to the cluster's API server.
package apiserver

import (
	"log"
	"net"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// On a node that just booted, packets to the API server's Service are lost until kube-proxy has run: with the
// usual thirty seconds the first attempt would outlast that by far.
const dialTimeout = 2 * time.Second

// Client returns the client of the pod's own ServiceAccount. With an endpoint (host:port) it uses that instead of
// the Service.
func Client(endpoint string) kubernetes.Interface {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	if endpoint != "" {
		config.Host = "https://" + endpoint
	}
	return kubernetes.NewForConfigOrDie(config)
}
