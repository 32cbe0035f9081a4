// Command node-network gives the pods of one node their network.
//
// It writes a CNI configuration (ptp + host-local + portmap) from the node's own podCIDR, keeps one route per
// other node's podCIDR through that node's InternalIP, and masquerades pod traffic that leaves the pod network.
// It runs once per node, in the node's network namespace. NODE_NAME, POD_SUBNET and
// CONTROL_PLANE_ENDPOINT (host:port) come from the environment.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"modelbackend.dev/e2e/cluster/tools/internal/apiserver"
)

const (
	configurationPath = "/etc/cni/net.d/10-node-network.conflist"
	// Routes and rules that somebody else removed come back within this time.
	repairInterval = 10 * time.Second
	retryInterval  = 300 * time.Millisecond
)

const configuration = `{
  "cniVersion": "0.4.0",
  "name": "node-network",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "mtu": %d,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

func main() {
	nodeName, podSubnet, controlPlane := os.Getenv("NODE_NAME"), os.Getenv("POD_SUBNET"), os.Getenv("CONTROL_PLANE_ENDPOINT")
	if nodeName == "" || podSubnet == "" || controlPlane == "" {
		log.Fatal("NODE_NAME, POD_SUBNET and CONTROL_PLANE_ENDPOINT must be set")
	}
	// Not through the API server's Service, which kube-proxy may not serve yet.
	factory := informers.NewSharedInformerFactory(apiserver.Client(controlPlane), 0)
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	nodes := factory.Core().V1().Nodes()
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	}); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		pause := repairInterval
		if err := configure(nodes.Lister(), nodeName, podSubnet); err != nil {
			log.Print(err)
			pause = retryInterval
		}
		select {
		case <-changed:
		case <-time.After(pause):
		}
	}
}

func configure(nodes listers.NodeLister, ownName, podSubnet string) error {
	all, err := nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, node := range all {
		if node.Spec.PodCIDR == "" {
			continue
		}
		if node.Name == ownName {
			err = configureOwn(node, podSubnet)
		} else {
			err = routeTo(node)
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	return nil
}

func configureOwn(node *corev1.Node, podSubnet string) error {
	tables, err := iptables.New()
	if err != nil {
		return err
	}
	// Only traffic that leaves the cluster's pods is masqueraded: NetworkPolicy must see pods' own addresses.
	if err := tables.AppendUnique("nat", "POSTROUTING",
		"-s", node.Spec.PodCIDR, "!", "-d", podSubnet, "-j", "MASQUERADE"); err != nil {
		return err
	}
	wanted := fmt.Sprintf(configuration, uplinkMTU(), node.Spec.PodCIDR)
	if present, err := os.ReadFile(configurationPath); err == nil && string(present) == wanted {
		return nil
	}
	if err := servicesWork(); err != nil {
		return err
	}
	draft := filepath.Join(filepath.Dir(configurationPath), ".node-network.draft")
	if err := os.WriteFile(draft, []byte(wanted), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, configurationPath)
}

// servicesWork fails until kube-proxy has programmed this node. With the CNI configuration the node becomes Ready,
// and the first pods would lose half a minute to a connection that nobody refuses.
func servicesWork() error {
	service := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	connection, err := net.DialTimeout("tcp", service, time.Second)
	if err != nil {
		return fmt.Errorf("waiting for kube-proxy: %w", err)
	}
	return connection.Close()
}

func routeTo(node *corev1.Node) error {
	_, destination, err := net.ParseCIDR(node.Spec.PodCIDR)
	if err != nil {
		return err
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return netlink.RouteReplace(&netlink.Route{Dst: destination, Gw: net.ParseIP(address.Address)})
		}
	}
	return nil
}

// uplinkMTU is the MTU of the node's eth0, or Ethernet's.
func uplinkMTU() int {
	if link, err := netlink.LinkByName("eth0"); err == nil {
		return link.Attrs().MTU
	}
	return 1500
}
