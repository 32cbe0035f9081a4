// Command node-volumes provisions PersistentVolumes that are folders of the node it runs on.
//
// One instance runs on every node and answers only for claims whose pod was scheduled there, so the storage class
// needs volumeBindingMode WaitForFirstConsumer. Folders are open to every user, because pods run as any.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"modelbackend.dev/e2e/cluster/tools/internal/apiserver"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

const (
	provisionerName        = "modelbackend.dev/node-volumes"
	selectedNodeAnnotation = "volume.kubernetes.io/selected-node"
	nodeAnnotation         = "node-volumes.modelbackend.dev/node"
	hostnameLabel          = "kubernetes.io/hostname"
)

type provisioner struct {
	nodeName string
	folder   string
}

func main() {
	nodeName, folder := os.Getenv("NODE_NAME"), os.Getenv("VOLUMES_FOLDER")
	if nodeName == "" || folder == "" {
		log.Fatal("NODE_NAME and VOLUMES_FOLDER must be set")
	}
	ctx := context.Background()
	controller.NewProvisionController(klog.FromContext(ctx), apiserver.Client(""), provisionerName,
		&provisioner{nodeName, folder}, controller.LeaderElection(false)).Run(ctx)
}

func (p *provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[selectedNodeAnnotation] == p.nodeName
}

func (p *provisioner) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	return volume.Annotations[nodeAnnotation] == p.nodeName
}

func (p *provisioner) Provision(
	_ context.Context, options controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(p.folder, options.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := os.Chmod(path, 0o777); err != nil { // MkdirAll obeys the umask
		return nil, controller.ProvisioningFinished, err
	}
	directory := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        options.PVName,
			Annotations: map[string]string{nodeAnnotation: p.nodeName},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: options.PVC.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory},
			},
			NodeAffinity: onlyOn(p.nodeName),
		},
	}, controller.ProvisioningFinished, nil
}

func (p *provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	path := filepath.Join(p.folder, volume.Name)
	if volume.Spec.HostPath == nil || volume.Spec.HostPath.Path != path {
		return fmt.Errorf("volume %s is not the folder %s", volume.Name, path)
	}
	return os.RemoveAll(path)
}

func onlyOn(nodeName string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      hostnameLabel,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{nodeName},
			}},
		}},
	}}
}
