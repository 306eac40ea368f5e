//go:build linux

package etcd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clientauth "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	kubeconfig "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

func example(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../examples", name))
	must(t, err)
	return b
}

// manifests decodes each document of a file into the next of objects, and
// fails at a field that Kubernetes does not know.
func manifests(t *testing.T, name string, objects ...any) {
	t.Helper()
	parts := bytes.Split(example(t, name), []byte("\n---\n"))
	if len(parts) != len(objects) {
		t.Fatalf("%s holds %d documents", name, len(parts))
	}
	for i, part := range parts {
		if err := yaml.UnmarshalStrict(part, objects[i]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// workflow is what we read of one of GitHub's.
type workflow struct {
	Jobs map[string]struct {
		Env   map[string]string
		Steps []struct {
			Name, Run string
			Env       map[string]string
		}
	}
}

// environment is all that a process of the machine gets.
func (m *machine) environment(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{"PATH=" + filepath.Dir(m.bin) + ":" + os.Getenv("PATH"), "HOME=" + m.dir, "NO_PROXY=*"}, more...)
}

func TestTheStepsOfTheWorkflowShareOneSession(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Loopback: true, Password: true})
	s := newSite(t, c)
	m := newMachine(t, s)
	config := strings.ReplaceAll(m.config("etcd", c.Endpoints(), []string{m.recipient}), "targets.box", "targets.shared")
	m.write("config/spendonce/config.toml", config)
	must(t, s.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.Lifetime = 50 * time.Second }))
	m.signIn("shared")
	// The stored token is not valid for as long as the runners want, and the
	// one that follows is.
	must(t, s.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.Lifetime = time.Hour }))
	before := s.server.Counters().Exchanges

	var w workflow
	must(t, yaml.Unmarshal(example(t, "github-actions/workflow.yml"), &w))
	job := w.Jobs["use"]
	step := job.Steps[len(job.Steps)-1]
	text := func(path string) string {
		b, err := os.ReadFile(path)
		must(t, err)
		return strings.TrimSpace(string(b))
	}
	secrets := map[string]string{
		"SESSION_IDENTITY": text(m.identity), "ETCD_CA": text(c.TLS.CA), "ETCD_USER": c.User.Name, "ETCD_PASSWORD": c.User.Password,
		"ETCD_CERT": text(c.TLS.Cert), "ETCD_KEY": text(c.TLS.Key), // the tests' members ask for them, too
	}
	for name, value := range step.Env {
		if value != "${{ secrets."+name+" }}" || secrets[name] == "" {
			t.Errorf("the step has %s = %s", name, value)
		}
	}
	temp := t.TempDir()
	env := m.environment(t, "RUNNER_TEMP="+temp, "GITHUB_ACTIONS=true", "SESSION_MIN_VALID=49990ms",
		"SESSION_URL="+s.server.ResourceURL(), "ETCD_ENDPOINTS="+strings.Join(c.Endpoints(), " "))
	for _, name := range []string{"SESSION_URL", "ETCD_ENDPOINTS"} {
		if job.Env[name] == "" {
			t.Errorf("the job has no %s", name)
		}
	}
	for name, value := range secrets {
		env = append(env, name+"="+value)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	masks := map[string]int{}
	for range 4 {
		wg.Go(func() {
			cmd := exec.Command("sh", "-e", "-c", step.Run)
			cmd.Dir, cmd.Env = "../..", env
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			mu.Lock()
			defer mu.Unlock()
			s.said.Write(said.Bytes())
			mask := regexp.MustCompile(`::add-mask::(\S+)\n`).FindSubmatch(out)
			if err != nil || mask == nil || !strings.Contains(string(out), "alice") {
				t.Errorf("a runner ended with %v: %s", err, said.String())
				return
			}
			masks[string(mask[1])]++
		})
	}
	wg.Wait()
	if n := s.server.Counters().Exchanges - before; n != 1 || len(masks) != 1 {
		t.Errorf("4 runners refreshed %d times and got %d tokens", n, len(masks))
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTheSidecarServesARequestOfItsPod(t *testing.T) {
	t.Parallel()
	var data corev1.ConfigMap
	var app appsv1.Deployment
	manifests(t, "kubernetes/sidecar.yaml", &data, &app)
	pod := app.Spec.Template.Spec
	place, sidecar := pod.InitContainers[0].Command, pod.InitContainers[1]
	for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
		for _, mount := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
				t.Errorf("%s mounts %s, which is no volume", c.Name, mount.Name)
			}
		}
	}
	if *sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Error("the sidecar is none")
	}

	c := cluster.Start(t, cluster.Options{Loopback: true, Password: true})
	s := newSite(t, c)
	m := newMachine(t, s)
	text := m.config("etcd", c.Endpoints(), []string{m.recipient})
	m.write("config/spendonce/config.toml", strings.ReplaceAll(text, "targets.box", "targets.example"))
	m.signIn("example")
	// The volumes are directories here, and what only this etcd knows is put
	// in the place of what stands in the example.
	volume, mounted := filepath.Join(t.TempDir(), "volume"), filepath.Join(t.TempDir(), "mounted")
	must(t, os.Mkdir(volume, 0o700))
	must(t, os.Chmod(volume, 0o777|os.ModeSetgid)) // as Kubernetes makes it
	in := strings.NewReplacer("/volume", volume, "/run/spendonce", mounted, "/etc/spendonce/", m.dir+"/pod/").Replace
	for i := range place {
		place[i] = in(place[i])
	}
	if out, err := exec.Command(place[0], place[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", place, err, out)
	}
	must(t, os.Rename(filepath.Join(volume, sidecar.VolumeMounts[2].SubPath), mounted)) // as it is mounted elsewhere
	configured := regexp.MustCompile(`endpoints +=.*`).ReplaceAllString(data.Data["config.toml"], "endpoints = ["+quoted(c.Endpoints())+"]\ncert = \""+c.TLS.Cert+"\"\nkey = \""+c.TLS.Key+"\"")
	configured = strings.NewReplacer("/etc/spendonce-secret/ca.pem", c.TLS.CA, "/etc/spendonce-secret/password", m.write("password", c.User.Password),
		"/etc/spendonce-secret/identity", m.identity, `"https://api.example.com"`, `"`+s.server.ResourceURL()+`"`, `"runner"`, `"`+c.User.Name+`"`).Replace(configured)
	m.write("pod/config.toml", configured)
	var args []string
	for _, a := range sidecar.Args {
		args = append(args, in(a))
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(m.bin), sidecar.Command[0]), args...)
	cmd.Env = m.environment(t)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var ready struct{ Socket string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		_ = cmd.Wait()
		t.Fatalf("the sidecar ended: %v, %s", err, said.String())
	}
	if probe := sidecar.StartupProbe.Exec.Command; exec.Command(probe[0], probe[1], in(probe[2])).Run() != nil {
		t.Errorf("the probe %q fails", probe)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", in(pod.Containers[0].Args[3]))
	}}}
	r, err := client.Get("http://example" + strings.TrimPrefix(s.server.ResourceURL(), s.server.URL()))
	must(t, err)
	body, err := io.ReadAll(r.Body)
	must(t, err)
	if r.StatusCode != http.StatusOK || !strings.Contains(string(body), "alice") {
		t.Errorf("%d: %s", r.StatusCode, body)
	}
	must(t, r.Body.Close())
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
}

func TestKubectlGetsATokenAsTheKubeconfigSays(t *testing.T) {
	t.Parallel()
	var config kubeconfig.Config
	manifests(t, "kubernetes/kubeconfig.yaml", &config)
	plugin := config.AuthInfos[0].AuthInfo.Exec

	c := cluster.Start(t, cluster.Options{Loopback: true})
	s := newSite(t, c)
	m := newMachine(t, s)
	m.write("config/spendonce/config.toml", strings.ReplaceAll(m.config("etcd", c.Endpoints(), nil), "targets.box", "targets.cluster"))
	m.signIn("cluster")
	token := m.must("token", "cluster")
	cmd := m.command(plugin.Args...)
	cmd.Path, cmd.Env = filepath.Join(filepath.Dir(m.bin), plugin.Command), append(cmd.Env, `KUBERNETES_EXEC_INFO={"apiVersion":"`+plugin.APIVersion+`","kind":"ExecCredential","spec":{"interactive":false}}`)
	r := m.result(cmd)
	var credential clientauth.ExecCredential
	if err := yaml.UnmarshalStrict([]byte(r.out), &credential); err != nil || r.code != 0 {
		t.Fatalf("it ended with %d, %v: %s", r.code, err, r.err)
	}
	if credential.Status.Token != token || credential.APIVersion != plugin.APIVersion || credential.Status.ExpirationTimestamp == nil {
		t.Error("it is not the token that is stored")
	}
}
