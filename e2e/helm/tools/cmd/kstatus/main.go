// kstatus reads Kubernetes objects as a JSON array and writes, as another one, how sigs.k8s.io/cli-utils sees each: the
// library by which `kubectl`-like appliers, Flux and Helm decide whether an object is done.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func run() error {
	var objects []unstructured.Unstructured // which reads whole numbers as such, as clients of Kubernetes do
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return err
	}
	verdicts := make([]verdict, 0, len(objects))
	for i := range objects {
		result, err := status.Compute(&objects[i])
		if err != nil {
			return err
		}
		verdicts = append(verdicts, verdict{string(result.Status), result.Message})
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}
