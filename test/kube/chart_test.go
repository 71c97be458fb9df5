package kube

import (
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/pod-security-admission/api"
	standards "k8s.io/pod-security-admission/policy"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/metrics"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// each has a test run for each Deployment of each sample.
func each(t *testing.T,
	test func(t *testing.T, o *objects, d *apps.Deployment, pod core.PodSpec, main core.Container)) {
	for _, sample := range samples {
		o := rendered(t, values(t, sample))
		for _, d := range o.Deployments {
			t.Run(sample+"/"+d.Name, func(t *testing.T) {
				pod := d.Spec.Template.Spec
				if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
					t.Fatalf("the pod has %d containers, and %d that run before", len(pod.Containers),
						len(pod.InitContainers))
				}
				test(t, o, d, pod, pod.Containers[0])
			})
		}
	}
}

// program is the command that a container runs, by its name: an image runs one program.
func program(c core.Container) string { return c.Name }

// environment is what a container sets to plain values, and fails the test for a variable that is set twice.
func environment(t *testing.T, c core.Container) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		if _, ok := env[e.Name]; ok {
			t.Errorf("%s is set twice", e.Name)
		}
		env[e.Name] = e.Value
	}
	return env
}

// TestFlags: each argument and each variable of ours is a flag that the command's own help has.
func TestFlags(t *testing.T) {
	bin := build(t)
	each(t, func(t *testing.T, _ *objects, _ *apps.Deployment, _ core.PodSpec, main core.Container) {
		if len(main.Args) == 0 || main.Args[0] != "serve" {
			t.Fatalf("it runs %q", main.Args)
		}
		help := helpOf(t, path.Join(bin, program(main)))
		for _, argument := range main.Args[1:] {
			flag, ok := strings.CutPrefix(argument, "--")
			if flag, _, _ = strings.Cut(flag, "="); !ok || !hasFlag(help, flag) {
				t.Errorf("%s: the help has no such flag", argument)
			}
		}
		for name := range environment(t, main) {
			flag, ours := strings.CutPrefix(name, "TOOLYARD_")
			if ours && !hasFlag(help, strings.ToLower(strings.ReplaceAll(flag, "_", "-"))) {
				t.Errorf("%s: the help has no such flag", name)
			}
		}
	})
	if help := helpOf(t, path.Join(bin, "worker")); !hasFlag(help, "classes") || hasFlag(help, "class") {
		t.Error("flags are not told apart")
	}
}

func hasFlag(help, name string) bool {
	return regexp.MustCompile(`(?m)^\s+--` + regexp.QuoteMeta(name) + `\s`).MatchString(help)
}

func helpOf(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "serve", "--help").CombinedOutput()
	if err != nil || len(out) == 0 {
		t.Fatalf("%s serve --help: %v\n%s", program, err, out)
	}
	return string(out)
}

// TestFiles: each file that a setting names below /etc/toolyard is one that the chart mounts there, a changed one
// starts the pods anew, and the dispatcher takes the lines of quotas, rates and budgets.
func TestFiles(t *testing.T) {
	named := map[string]int{}
	each(t, func(t *testing.T, o *objects, d *apps.Deployment, pod core.PodSpec, main core.Container) {
		files := map[string]string{}
		for _, v := range pod.Volumes {
			for _, c := range o.ConfigMaps {
				if v.ConfigMap != nil && v.ConfigMap.Name == c.Name && v.Name == "files" {
					files = c.Data
				}
			}
		}
		if d.Spec.Template.Annotations["toolyard.dev/files"] == "" {
			t.Error("the pods do not say which files they have")
		}
		for name, value := range environment(t, main) {
			for line := range strings.Lines(value) {
				file, ok := strings.CutPrefix(strings.TrimSpace(line), "/etc/toolyard/")
				if !ok {
					continue
				}
				named[name]++
				if files[file] == "" {
					t.Errorf("%s names %s, and the files are %v", name, line, slices.Collect(maps.Keys(files)))
				}
			}
		}
		quotas, ok := files["quotas.txt"]
		if !ok {
			return
		}
		file := must.File(t, "quotas.txt", quotas)
		out, err := exec.CommandContext(t.Context(), path.Join(build(t), "dispatcher"), "explain", "--agent", "ci-1",
			"--quota-file", file, filepath.Join(top, "examples/explore.json")).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "ci-*") {
			t.Errorf("%v: %s", err, out)
		}
	})
	if named["TOOLYARD_QUOTA_FILE"] == 0 || named["TOOLYARD_RULES"] == 0 {
		t.Errorf("the samples name files in %v", named)
	}
}

// TestPorts: each port that something names is one that the program listens on, and each probe asks for a path that
// answers (TestProcesses asks them).
func TestPorts(t *testing.T) {
	each(t, func(t *testing.T, o *objects, d *apps.Deployment, _ core.PodSpec, main core.Container) {
		env, listens := environment(t, main), map[string]int32{}
		for _, p := range main.Ports {
			if p.Name == "" || len(validation.IsValidPortName(p.Name)) > 0 {
				t.Errorf("%q is no name of a port", p.Name)
			}
			variable := map[string]string{"http": "TOOLYARD_LISTEN", "metrics": "TOOLYARD_METRICS_LISTEN"}[p.Name]
			if want := "0.0.0.0:" + strconv.Itoa(int(p.ContainerPort)); env[variable] != want {
				t.Errorf("the port %s is %d, and %s is %q", p.Name, p.ContainerPort, variable, env[variable])
			}
			listens[p.Name] = p.ContainerPort
		}
		known := func(what string, p intstr.IntOrString) {
			if _, ok := listens[p.StrVal]; !ok {
				t.Errorf("%s is for the port %q; there are %v", what, p.String(), listens)
			}
		}
		for what, p := range map[string]*core.Probe{"/healthz": main.LivenessProbe, "/healthz ": main.StartupProbe,
			"/readyz": main.ReadinessProbe} {
			if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != strings.TrimSpace(what) || p.HTTPGet.Scheme != "" {
				t.Fatalf("there is no probe of %s", what)
			}
			known("a probe", p.HTTPGet.Port)
		}
		for _, s := range o.Services {
			if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
				for _, p := range s.Spec.Ports {
					known("the service "+s.Name, p.TargetPort)
				}
			}
		}
		for _, n := range o.Policies {
			if selects(t, &n.Spec.PodSelector, d) {
				for _, in := range n.Spec.Ingress {
					for _, p := range in.Ports {
						known("the policy "+n.Name, *p.Port)
					}
				}
			}
		}
	})
}

func selects(t *testing.T, s *meta.LabelSelector, d *apps.Deployment) bool {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil || selector.Empty() {
		t.Fatalf("a selector selects %v: %v", selector, err)
	}
	return selector.Matches(labels.Set(d.Spec.Template.Labels))
}

// TestSelectors: each Deployment has one budget, one policy, and spreads its own pods; the API's Service and Ingresses
// lead to the dispatchers, and an autoscaler to a Deployment that names no number itself.
func TestSelectors(t *testing.T) {
	for _, sample := range samples {
		o := rendered(t, values(t, sample))
		for _, d := range o.Deployments {
			selected := 0
			for _, other := range o.Deployments {
				if selects(t, d.Spec.Selector, other) {
					selected++
				}
			}
			budgets, policies, scaled := 0, 0, 0
			for _, b := range o.Budgets {
				if selects(t, b.Spec.Selector, d) {
					budgets++
				}
			}
			for _, n := range o.Policies {
				if selects(t, &n.Spec.PodSelector, d) {
					policies++
				}
			}
			for _, s := range o.Scaled {
				if s.Spec.ScaleTargetRef.Name == d.Name {
					scaled++
				}
			}
			if selected != 1 || budgets != 1 || policies != 1 || scaled > 1 ||
				(scaled == 1) != (d.Spec.Replicas == nil) {
				t.Errorf("%s: %s selects the pods of %d deployments; it has %d budgets, %d policies, %d autoscalers and "+
					"the number %v", sample, d.Name, selected, budgets, policies, scaled, d.Spec.Replicas)
			}
			if len(d.Spec.Template.Spec.TopologySpreadConstraints) != 2 {
				t.Errorf("%s: %s does not spread", sample, d.Name)
			}
			for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
				if !selects(t, c.LabelSelector, d) {
					t.Errorf("%s: %s does not spread its own pods", sample, d.Name)
				}
			}
		}
		service := o.Services[0]
		for _, d := range o.Deployments {
			to := labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels))
			if to != (program(d.Spec.Template.Spec.Containers[0]) == "dispatcher") {
				t.Errorf("%s: whether the service leads to %s: %v", sample, d.Name, to)
			}
		}
		var paths []string
		for _, i := range o.Ingresses {
			for _, p := range i.Spec.Rules[0].HTTP.Paths {
				paths = append(paths, p.Path)
				if b := p.Backend.Service; b.Name != service.Name || b.Port.Number != service.Spec.Ports[0].Port ||
					*p.PathType != networking.PathTypePrefix {
					t.Errorf("%s: %s leads to %s:%d", sample, p.Path, b.Name, b.Port.Number)
				}
			}
		}
		slices.Sort(paths) // objects of one kind come in any order
		if len(o.Ingresses) > 0 && !slices.Equal(paths, []string{"/", "/mcp"}) {
			t.Errorf("%s: there are Ingresses for %q", sample, paths)
		}
		for _, s := range o.Scaled {
			o.deployment(t, s.Spec.ScaleTargetRef.Name)
		}
	}
}

// TestHardened: each pod fits Kubernetes' strictest standard, but for what the sandbox needs: the next one allows that
// where no AppArmor is in the way. It is bounded, and its user is that of the images.
func TestHardened(t *testing.T) {
	evaluator, err := standards.NewEvaluator(standards.DefaultChecks(), nil)
	must.OK(t, err)
	users := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindAllStringSubmatch(read(t, "deploy/Dockerfile"), -1)
	if len(users) == 0 {
		t.Fatal("the Dockerfile names no user")
	}
	each(t, func(t *testing.T, _ *objects, d *apps.Deployment, pod core.PodSpec, main core.Container) {
		for _, u := range users {
			s := pod.SecurityContext
			if got := strconv.Itoa(int(*s.RunAsUser)) + " " + strconv.Itoa(int(*s.RunAsGroup)); got != u[1]+" "+u[2] ||
				*s.FSGroup != *s.RunAsGroup {
				t.Errorf("it runs as %s, and an image as %s", got, u[0])
			}
		}
		forbids := map[api.Level][]string{}
		if main.SecurityContext.ProcMount != nil {
			forbids[api.LevelRestricted] = []string{"procMount"}
		}
		if pod.SecurityContext.AppArmorProfile != nil {
			forbids[api.LevelBaseline] = []string{"forbidden AppArmor profile"}
			forbids[api.LevelRestricted] = []string{"forbidden AppArmor profile", "procMount"}
		}
		for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
			var problems []string
			for _, r := range evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()},
				&d.Spec.Template.ObjectMeta, &pod) {
				if !r.Allowed {
					problems = append(problems, r.ForbiddenReason)
				}
			}
			if !slices.Equal(problems, forbids[level]) {
				t.Errorf("the standard %q forbids %q, want %q", level, problems, forbids[level])
			}
		}
		for what, ok := range map[string]bool{
			"a read-only root":    *main.SecurityContext.ReadOnlyRootFilesystem,
			"no token":            !*pod.AutomountServiceAccountToken,
			"no variables of all": !*pod.EnableServiceLinks, // they could begin with TOOLYARD_
			"a limit of memory":   !main.Resources.Limits.Memory().IsZero(),
			"a number of updates": d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntVal == 0,
		} {
			if !ok {
				t.Errorf("it does not have %s", what)
			}
		}
		for _, m := range main.VolumeMounts {
			i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
			if i < 0 {
				t.Errorf("it mounts %s, which is no volume", m.Name)
			} else if v := pod.Volumes[i]; (v.Secret != nil || v.ConfigMap != nil) && !m.ReadOnly {
				t.Errorf("it can write %s", m.Name)
			} else if v.Secret != nil && *v.Secret.DefaultMode != 0o440 {
				t.Errorf("%s has the mode %o", m.Name, *v.Secret.DefaultMode)
			}
		}
		if len(pod.Volumes) != len(main.VolumeMounts) {
			t.Errorf("it has %d volumes and mounts %d", len(pod.Volumes), len(main.VolumeMounts))
		}
	})
}

// TestSandbox: a worker has what docs/sandbox.md asks for or nothing of it, and a dispatcher has nothing of it.
func TestSandbox(t *testing.T) {
	each(t, func(t *testing.T, _ *objects, d *apps.Deployment, pod core.PodSpec, main core.Container) {
		s := pod.SecurityContext
		proc := main.SecurityContext.ProcMount
		parts := []bool{
			s.SeccompProfile.Type == core.SeccompProfileTypeLocalhost &&
				*s.SeccompProfile.LocalhostProfile == "toolyard/seccomp.json",
			s.AppArmorProfile != nil && s.AppArmorProfile.Type == core.AppArmorProfileTypeUnconfined,
			proc != nil && *proc == core.UnmaskedProcMount,
			pod.HostUsers != nil && !*pod.HostUsers, // an API server refuses to unmask /proc without
		}
		if strings.HasPrefix(t.Name(), "TestSandbox/no_AppArmor") {
			parts = slices.Delete(parts, 1, 2)
		}
		if slices.Contains(parts, true) == slices.Contains(parts, false) {
			t.Errorf("it has %v of what a sandbox needs", parts)
		}
		if parts[0] && program(main) != "worker" {
			t.Error("it is no worker")
		}
		env := environment(t, main)
		if unsafe := slices.Equal(main.Args, []string{"serve", "--classes=UNSAFE"}); unsafe && !parts[0] {
			t.Error("it is for UNSAFE calls alone, and has no sandbox: it does not start")
		} else if !unsafe && strings.Contains(env["TOOLYARD_ALLOW"], "bash") {
			t.Error("it allows commands that change something, and is not for UNSAFE calls alone")
		}
		if !parts[0] {
			return
		}
		number := func(variable string) int64 {
			n, err := strconv.ParseInt(env[variable], 10, 64)
			if err != nil && env[variable] != "" {
				t.Fatal(err)
			}
			return n
		}
		own := int64(256 << 20) // what a worker itself needs, and what lies in memory
		for _, v := range pod.Volumes {
			if v.EmptyDir != nil && v.EmptyDir.Medium == core.StorageMediumMemory {
				own += v.EmptyDir.SizeLimit.Value()
			}
		}
		slots := number("TOOLYARD_READ_SLOTS") + number("TOOLYARD_WRITE_SLOTS")
		want := slots*number("TOOLYARD_SANDBOX_MEMORY")<<20 + own
		if have := main.Resources.Limits.Memory().Value(); slots == 0 || have < want {
			t.Errorf("it has %d slots and %d bytes of memory, want %d", slots, have, want)
		}
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			t.Error("there is none of it")
		}
	})
}

// TestEnd: a pod has as long to end as its calls may go on, and some seconds more.
func TestEnd(t *testing.T) {
	each(t, func(t *testing.T, _ *objects, _ *apps.Deployment, pod core.PodSpec, main core.Container) {
		need := 20 * time.Second // a dispatcher lets go of its batches, and answers what it was asked
		if drain, ok := environment(t, main)["TOOLYARD_DRAIN_GRACE"]; ok {
			d, err := time.ParseDuration(drain)
			must.OK(t, err)
			need = d + 10*time.Second
		} else if program(main) == "worker" {
			t.Fatal("it has the default time to drain, which nobody compares with the pod's")
		}
		if l := main.Lifecycle; l != nil {
			need += time.Duration(l.PreStop.Sleep.Seconds) * time.Second
		}
		if have := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; have < need {
			t.Errorf("it has %v to end, and needs %v", have, need)
		}
	})
}

// TestAsCompose: what stands in both has one value in deploy/compose.yaml and in the chart.
func TestAsCompose(t *testing.T) {
	compose := read(t, "deploy/compose.yaml")
	o := rendered(t, values(t, "default"))
	for _, d := range o.Deployments {
		main := d.Spec.Template.Spec.Containers[0]
		for name, value := range environment(t, main) {
			m := regexp.MustCompile(`(?m)^ +`+name+`: (?:\$\{\w+:-(.*)\}|"(.*)"|(.*))$`).FindAllStringSubmatch(compose, -1)
			if name == "TOOLYARD_NATS" || len(m) == 0 {
				continue
			}
			if !slices.ContainsFunc(m, func(m []string) bool { return m[1]+m[2]+m[3] == value }) {
				t.Errorf("%s: %s is %q, and compose.yaml has %q", d.Name, name, value, m)
			}
		}
	}
	general := o.deployment(t, "toolyard-worker-general").Spec.Template.Spec.Containers[0]
	if !strings.Contains(compose, "["+strings.Join(general.Args, ", ")+"]") {
		t.Errorf("compose.yaml has no worker with %q", general.Args)
	}
	dispatchers := o.deployment(t, "toolyard-dispatcher")
	if *dispatchers.Spec.Replicas != 2 || !strings.Contains(compose, "deploy: {replicas: 2}") {
		t.Error("the numbers of dispatchers are not the same")
	}
}

// TestAutoscaling: the autoscaler asks for metrics that exist, with labels that they have, of the worker's own pool and
// classes, and wants no more calls of a worker than it has slots.
func TestAutoscaling(t *testing.T) {
	o := rendered(t, values(t, "large"))
	selector := regexp.MustCompile(`(\w+)\{pool="([^"]*)",class=~"([^"]*)"\}`)
	for _, s := range o.Scaled {
		main := o.deployment(t, s.Spec.ScaleTargetRef.Name).Spec.Template.Spec.Containers[0]
		env := environment(t, main)
		trigger := s.Spec.Triggers[0]
		found := selector.FindAllStringSubmatch(trigger.Metadata["query"], -1)
		if len(found) != 2 || trigger.Type != "prometheus" {
			t.Fatalf("%s asks %q", s.Name, trigger.Metadata["query"])
		}
		for _, m := range found {
			i := slices.IndexFunc(metrics.All(), func(d metrics.Metric) bool { return d.Name == m[1] })
			if i < 0 || !slices.Equal(metrics.All()[i].Labels, []string{"pool", "class"}) {
				t.Errorf("%s: there is no metric %s with a pool and a class", s.Name, m[1])
			}
			if m[2] != env["TOOLYARD_POOL"] {
				t.Errorf("%s is of the pool %s, and asks for %s", s.Name, env["TOOLYARD_POOL"], m[2])
			}
			classes := regexp.MustCompile("^(?:" + m[3] + ")$")
			for _, class := range toolyard.Classes {
				takes := len(main.Args) == 1 || slices.Contains(main.Args, "--classes="+string(class))
				if classes.MatchString(string(class)) != takes {
					t.Errorf("%s asks for %q, and whether it takes %s is %v", s.Name, m[3], class, takes)
				}
			}
		}
		slots := 0
		for variable, preset := range map[string]int{"TOOLYARD_READ_SLOTS": 16, "TOOLYARD_WRITE_SLOTS": 4} {
			if n, err := strconv.Atoi(env[variable]); err == nil {
				slots += n
			} else if !strings.Contains(strings.Join(main.Args, " "), "UNSAFE") || variable == "TOOLYARD_WRITE_SLOTS" {
				slots += preset
			}
		}
		if n, err := strconv.Atoi(trigger.Metadata["threshold"]); err != nil || n > slots || n == 0 {
			t.Errorf("%s: %q calls for a worker that has %d slots", s.Name, trigger.Metadata["threshold"], slots)
		}
	}
}
