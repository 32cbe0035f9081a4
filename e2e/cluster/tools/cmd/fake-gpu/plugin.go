package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resourceName        = "nvidia.com/gpu"
	countAnnotation     = "fake-gpu.modelbackend.dev/count"
	unhealthyAnnotation = "fake-gpu.modelbackend.dev/unhealthy"
)

type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	mutex   sync.Mutex
	devices []*pluginapi.Device
	changed chan struct{} // closed and replaced at each change of devices
}

func newPlugin() *plugin {
	return &plugin{changed: make(chan struct{})}
}

// followNode keeps the devices as the node's annotations say.
func (p *plugin) followNode(client kubernetes.Interface, nodeName, defaultCount string) {
	update := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			p.set(devicesOf(node.Annotations, defaultCount))
		}
	}
	source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "",
		fields.OneTermEqualSelector("metadata.name", nodeName))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    update,
			UpdateFunc: func(_, object any) { update(object) },
		},
	})
	informer.Run(context.Background().Done())
}

func devicesOf(annotations map[string]string, defaultCount string) []*pluginapi.Device {
	text := defaultCount
	if value, ok := annotations[countAnnotation]; ok {
		text = value
	}
	count, err := strconv.Atoi(text)
	if err != nil {
		log.Printf("%s: %q is not a number; no devices", countAnnotation, text)
	}
	unhealthy := strings.Split(annotations[unhealthyAnnotation], ",")
	devices := []*pluginapi.Device{}
	for index := range count {
		name := fmt.Sprintf("gpu-%d", index)
		health := pluginapi.Healthy
		if slices.Contains(unhealthy, name) {
			health = pluginapi.Unhealthy
		}
		devices = append(devices, &pluginapi.Device{ID: name, Health: health})
	}
	return devices
}

func (p *plugin) set(devices []*pluginapi.Device) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	same := slices.EqualFunc(devices, p.devices, func(a, b *pluginapi.Device) bool {
		return a.ID == b.ID && a.Health == b.Health
	})
	if same && p.devices != nil {
		return
	}
	log.Printf("devices: %v", devices)
	p.devices = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plugin) current() ([]*pluginapi.Device, <-chan struct{}) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.devices, p.changed
}

func (p *plugin) listen(socket string) (*grpc.Server, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Print(err)
		}
	}()
	return server, nil
}

func register(ctx context.Context, endpoint string) error {
	connection, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version:      pluginapi.Version,
		Endpoint:     endpoint,
		ResourceName: resourceName,
	}, grpc.WaitForReady(true))
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	for {
		devices, changed := p.current()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}
