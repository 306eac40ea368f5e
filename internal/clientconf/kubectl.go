package clientconf

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// kubeconfig is what 'kubectl config view' shows of it. Credentials are not:
// it prints REDACTED in their place.
type kubeconfig struct {
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server string `json:"server"`
		} `json:"cluster"`
	} `json:"clusters"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Users []struct {
		Name string         `json:"name"`
		User map[string]any `json:"user"`
	} `json:"users"`
}

func viewKubeconfig(ctx context.Context, env map[string]string) (kubeconfig, error) {
	var k kubeconfig
	out, err := run(ctx, "", env, "kubectl", "config", "view", "--output=json")
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(out, &k); err != nil {
		return kubeconfig{}, fmt.Errorf("reading what 'kubectl config view' says: %w", err)
	}
	return k, nil
}

// command returns how the user of that name gets its credentials: the command
// and its arguments, if that is all there is. There is false if there is no
// such user.
func (k kubeconfig) command(name string) (argv []string, there bool) {
	for _, u := range k.Users {
		if u.Name != name {
			continue
		}
		exec, _ := u.User["exec"].(map[string]any)
		command, _ := exec["command"].(string)
		env, _ := exec["env"].([]any)
		if command == "" || len(u.User) != 1 || len(env) > 0 || exec["apiVersion"] != execVersion {
			return nil, true
		}
		argv = []string{command}
		args, _ := exec["args"].([]any)
		for _, a := range args {
			text, _ := a.(string)
			argv = append(argv, text)
		}
		return argv, true
	}
	return nil, false
}

const execVersion = "client.authentication.k8s.io/v1"

// planKubectl makes a user with the name of the target that gets its token
// from here, for the targets whose origin is that of a cluster.
func (s *Setup) planKubectl(ctx context.Context, p *Plan, known []record, wanted []Service, named bool) error {
	var env map[string]string
	if file := os.Getenv("KUBECONFIG"); file != "" {
		env = map[string]string{"KUBECONFIG": file}
	}
	k, err := viewKubeconfig(ctx, env)
	if err != nil {
		return err
	}
	for _, service := range wanted {
		clusters := s.clustersOf(k, service)
		switch {
		case len(clusters) == 0 && !named:
			continue
		case len(clusters) == 0:
			p.note("no cluster in the kubeconfig is at an origin of %s", service.Target)
		}
		argv := slices.Concat(s.Program, []string{"credential", "kubectl", service.Target})
		r := record{Client: Kubectl, Targets: []string{service.Target}, Tool: &setting{Key: service.Target, Values: argv, Env: env}}
		now, there := k.command(service.Target)
		if there && slices.Equal(now, argv) {
			p.already("%s is already set up: the kubeconfig has a user %s", service.Target, service.Target)
		} else {
			i := slices.IndexFunc(known, r.same)
			if there && (i < 0 || now == nil || !slices.Equal(known[i].Tool.Values, now)) {
				return fmt.Errorf("the kubeconfig has a user %s already, and not from here: take it out by 'kubectl config delete-user %s' if it is not needed, or sign in under another name", service.Target, service.Target)
			}
			s.planKubectlUser(p, r)
		}
		for _, c := range k.Contexts {
			if slices.Contains(clusters, c.Context.Cluster) && c.Context.User != service.Target {
				p.note("context %s does not use it yet: %s", printable(c.Name), ShellLine("kubectl", "config", "set-context", printable(c.Name), "--user="+service.Target))
			}
		}
	}
	return nil
}

// clustersOf are the names of the clusters at an origin of a service.
func (s *Setup) clustersOf(k kubeconfig, service Service) []string {
	var names []string
	for _, c := range k.Clusters {
		if o := s.Origin(c.Cluster.Server); o != "" && slices.Contains(service.Origins, o) {
			names = append(names, c.Name)
		}
	}
	return names
}

func (s *Setup) planKubectlUser(p *Plan, r record) {
	t := r.Tool
	argv := []string{"kubectl", "config", "set-credentials", t.Key, "--exec-api-version=" + execVersion, "--exec-interactive-mode=Never", "--exec-command=" + t.Values[0]}
	for _, a := range t.Values[1:] {
		argv = append(argv, "--exec-arg="+csvField(a))
	}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, Commands: [][]string{argv}, do: func(ctx context.Context, j *journal) error {
		if err := j.note(r); err != nil {
			return err
		}
		if _, err := run(ctx, "", t.Env, argv...); err != nil {
			if strings.Contains(err.Error(), "interactive-mode") {
				err = fmt.Errorf("%w: this kubectl is too old to be set up by itself; docs/credential-helpers.md shows what to write", err)
			}
			return err
		}
		k, err := viewKubeconfig(ctx, t.Env)
		if now, _ := k.command(t.Key); err == nil && !slices.Equal(now, t.Values) {
			err = fmt.Errorf("reading user %s of the kubeconfig back: %w", t.Key, ErrAltered)
		}
		return err
	}})
}

func (s *Setup) planKubectlUndo(ctx context.Context, p *Plan, r record) error {
	k, err := viewKubeconfig(ctx, r.Tool.Env)
	if err != nil {
		return err
	}
	now, there := k.command(r.Tool.Key)
	if s.undoIsDone(p, r, !there, slices.Equal(now, r.Tool.Values)) {
		return nil
	}
	for _, c := range k.Contexts {
		if c.Context.User == r.Tool.Key {
			p.note("context %s still names user %s: %s lets it use another", printable(c.Name), r.Tool.Key,
				ShellLine("kubectl", "config", "set-context", printable(c.Name), "--user=NAME"))
		}
	}
	argv := []string{"kubectl", "config", "delete-user", r.Tool.Key}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, Commands: [][]string{argv}, do: func(ctx context.Context, j *journal) error {
		if _, err := run(ctx, "", r.Tool.Env, argv...); err != nil {
			return err
		}
		return j.strike(r)
	}})
	return nil
}
