// Command fake-gpu is a kubelet device plugin whose nvidia.com/gpu devices do not exist.
//
// A test steers it by annotations on the node it runs on:
//
//	fake-gpu.modelbackend.dev/count: "4"                  how many devices there are (default: FAKE_GPU_COUNT)
//	fake-gpu.modelbackend.dev/unhealthy: gpu-0,gpu-3      which of them are broken
//
// Deleting its pod restarts it. A container that was given devices finds their names in NVIDIA_VISIBLE_DEVICES.
// See https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"modelbackend.dev/e2e/cluster/tools/internal/apiserver"
)

func main() {
	nodeName := os.Getenv("NODE_NAME")
	if nodeName == "" {
		log.Fatal("NODE_NAME must be set")
	}
	plugin := newPlugin()
	_, known := plugin.current()
	go plugin.followNode(apiserver.Client(""), nodeName, os.Getenv("FAKE_GPU_COUNT"))
	<-known // a kubelet that was told of no devices would refuse the pods that have some
	for {
		if err := serveUntilKubeletRestarts(plugin); err != nil {
			log.Print(err)
		}
		time.Sleep(time.Second)
	}
}

// serveUntilKubeletRestarts registers once. A restarted kubelet empties the folder of plugin sockets, so the
// disappearance of ours is the sign to register again.
func serveUntilKubeletRestarts(plugin *plugin) error {
	socket := filepath.Join(pluginapi.DevicePluginPath, "fake-gpu.sock")
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	server, err := plugin.listen(socket)
	if err != nil {
		return err
	}
	defer server.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := register(ctx, filepath.Base(socket)); err != nil {
		return err
	}
	log.Print("registered nvidia.com/gpu with the kubelet")
	for {
		if _, err := os.Stat(socket); err != nil {
			log.Print("the kubelet restarted")
			return nil
		}
		time.Sleep(time.Second)
	}
}
