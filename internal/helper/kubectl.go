package helper

import (
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
)

// ExecInfoVariable is where kubectl and all of client-go say what they want
// of a plugin.
const ExecInfoVariable = "KUBERNETES_EXEC_INFO"

// The versions of the plugin protocol. The answer must have that of the
// question.
const (
	execGroup   = "client.authentication.k8s.io/"
	ExecV1      = execGroup + "v1"
	ExecV1beta1 = execGroup + "v1beta1"
)

const execKind = "ExecCredential"

// ExecInfo is the question of client-go. Server is the cluster's address; it
// is empty unless the kubeconfig sets provideClusterInfo.
type ExecInfo struct {
	Version string
	Server  string
}

// ParseExecInfo reads the variable's value, at most 1 MiB: a cluster's
// certificates are in it. Another version or kind than ours is refused; an
// answer in a version that was not asked for would be, there.
func ParseExecInfo(value string) (ExecInfo, error) {
	if len(value) > maxInput {
		return ExecInfo{}, fmt.Errorf("%w: %s is larger than 1 MiB", ErrInput, ExecInfoVariable)
	}
	var info struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(value), &info); err != nil {
		return ExecInfo{}, fmt.Errorf("%w: %s is not the JSON that it should be", ErrInput, ExecInfoVariable)
	}
	switch {
	case info.Kind != execKind:
		return ExecInfo{}, fmt.Errorf("%w: %s is of another kind than %s", ErrInput, ExecInfoVariable, execKind)
	case info.APIVersion != ExecV1 && info.APIVersion != ExecV1beta1:
		return ExecInfo{}, fmt.Errorf("%w: %s asks for another version than %s and v1beta1: set the apiVersion of the exec plugin in the kubeconfig", ErrInput, ExecInfoVariable, ExecV1)
	}
	return ExecInfo{Version: info.APIVersion, Server: info.Spec.Cluster.Server}, nil
}

type execCredential struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Status     execStatus `json:"status"`
}

type execStatus struct {
	ExpirationTimestamp string `json:"expirationTimestamp,omitempty"`
	Token               string `json:"token"`
}

// WriteExecCredential answers a question of that version. client-go keeps
// the token until its expiry, and asks again after a 401.
func WriteExecCredential(out io.Writer, version string, c Credential) error {
	token, err := c.text()
	if err != nil {
		return err
	}
	answer := execCredential{APIVersion: version, Kind: execKind, Status: execStatus{Token: token}}
	if !c.ExpiresAt.IsZero() {
		answer.Status.ExpirationTimestamp = c.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return writeJSON(out, answer)
}
