// Package kube holds the Helm chart against Kubernetes' types and the commands that it runs. Each rendered object is
// read as an API server reads it, and each flag, port and path is one that exists.
package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releases "helm.sh/helm/v4/pkg/release/v1/util"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

const (
	top      = "../.."
	chartDir = top + "/deploy/helm/toolyard"
	// release and namespace are where the tests install it.
	release, namespace = "toolyard", "agents"
)

// someNATS is what a values file must have at least.
const someNATS = "nats: {url: 'tls://nats:4222'}"

// samples are the values that the chart is rendered with: its own with nothing but the address of NATS, on nodes that
// have AppArmor and on such that have not, and the examples.
var samples = []string{"default", "no AppArmor", "small", "large"}

// values reads one of the samples.
func values(t *testing.T, sample string) string {
	t.Helper()
	switch sample {
	case "default":
		return someNATS
	case "no AppArmor":
		return someNATS + "\nworkerDefaults: {sandbox: {appArmorUnconfined: false}}"
	}
	return read(t, "deploy/helm/toolyard/examples/"+sample+".yaml")
}

// read reads a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	data := must.Read(t, filepath.Join(top, filepath.FromSlash(name)))
	return string(data)
}

// objects are what the chart makes.
type objects struct {
	Deployments     []*apps.Deployment
	Services        []*core.Service
	ServiceAccounts []*core.ServiceAccount
	Claims          []*core.PersistentVolumeClaim
	ConfigMaps      []*core.ConfigMap
	Budgets         []*policy.PodDisruptionBudget
	Ingresses       []*networking.Ingress
	Policies        []*networking.NetworkPolicy
	Scaled          []*keda.ScaledObject
}

// deployment is the one of a name.
func (o *objects) deployment(t *testing.T, name string) *apps.Deployment {
	t.Helper()
	i := slices.IndexFunc(o.Deployments, func(d *apps.Deployment) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("there is no deployment %s", name)
	}
	return o.Deployments[i]
}

// load reads the chart. A test may change its templates.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	must.OK(t, err)
	return c
}

// render makes the chart's objects with some values, as "helm install" does: the values are held against the schema. A
// value that no template knows, and a template's that no value has, is an error.
func render(ctx context.Context, c *chart.Chart, with ...string) (*objects, error) {
	merged := map[string]any{}
	for _, text := range with {
		v, err := loader.LoadValues(strings.NewReader(text))
		if err != nil {
			return nil, err
		}
		merged = loader.MergeMaps(merged, v)
	}
	all, err := util.ToRenderValues(c, merged, common.ReleaseOptions{Name: release, Namespace: namespace,
		Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(ctx, c, all)
	if err != nil {
		return nil, err
	}
	o, seen := &objects{}, map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(file, ".tpl") || strings.HasSuffix(file, "NOTES.txt") {
			continue
		}
		for _, document := range releases.SplitManifests(files[file]) {
			name, err := o.add(document)
			if err == nil && seen[name] {
				err = errors.New("it is there twice")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w\n%s", file, name, err, document)
			}
			seen[name] = true
		}
	}
	return o, nil
}

// add reads a document as an API server does that is asked to refuse what it does not know: a field that the type does
// not have is an error, and so is one that is written twice, or in other capitals. A document with nothing but comments
// is none.
func (o *objects) add(document string) (string, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil || string(data) == "null" {
		return document, err
	}
	var of struct {
		meta.TypeMeta
		meta.ObjectMeta `json:"metadata"`
	}
	if err := yaml.Unmarshal(data, &of); err != nil {
		return "", err
	}
	kind := of.APIVersion + " " + of.Kind
	name := kind + " " + of.Name
	switch kind {
	case "apps/v1 Deployment":
		err = decode(data, &o.Deployments)
	case "v1 Service":
		err = decode(data, &o.Services)
	case "v1 ServiceAccount":
		err = decode(data, &o.ServiceAccounts)
	case "v1 PersistentVolumeClaim":
		err = decode(data, &o.Claims)
	case "v1 ConfigMap":
		err = decode(data, &o.ConfigMaps)
	case "policy/v1 PodDisruptionBudget":
		err = decode(data, &o.Budgets)
	case "networking.k8s.io/v1 Ingress":
		err = decode(data, &o.Ingresses)
	case "networking.k8s.io/v1 NetworkPolicy":
		err = decode(data, &o.Policies)
	case "keda.sh/v1alpha1 ScaledObject":
		err = decode(data, &o.Scaled)
	default:
		err = fmt.Errorf("the tests know no %q", kind)
	}
	if err == nil && of.Name == "" {
		err = errors.New("it has no name")
	}
	return name, err
}

func decode[T any](data []byte, into *[]*T) error {
	v := new(T)
	problems, err := strict.UnmarshalStrict(data, v)
	if err = errors.Join(append(problems, err)...); err != nil {
		return err
	}
	*into = append(*into, v)
	return nil
}

// rendered is a sample that must render.
func rendered(t *testing.T, with ...string) *objects {
	t.Helper()
	o, err := render(t.Context(), load(t), with...)
	must.OK(t, err)
	return o
}

// TestRender: each sample makes objects that Kubernetes and KEDA read, as many as it should.
func TestRender(t *testing.T) {
	for sample, want := range map[string][9]int{
		// Deployments, Services, accounts, claims, files, budgets, Ingresses, policies, ScaledObjects.
		"default":     {3, 1, 1, 1, 0, 3, 0, 3, 0},
		"no AppArmor": {3, 1, 1, 1, 0, 3, 0, 3, 0},
		"small":       {2, 1, 1, 0, 0, 2, 0, 2, 0},
		"large":       {5, 1, 1, 1, 2, 5, 2, 5, 3},
	} {
		o := rendered(t, values(t, sample))
		got := [9]int{len(o.Deployments), len(o.Services), len(o.ServiceAccounts), len(o.Claims), len(o.ConfigMaps),
			len(o.Budgets), len(o.Ingresses), len(o.Policies), len(o.Scaled)}
		if got != want {
			t.Errorf("%s makes %v, want %v", sample, got, want)
		}
	}
}

// TestMisspelt is the control of TestRender: what is misspelt in a template is found, wherever it stands.
func TestMisspelt(t *testing.T) {
	for _, c := range []struct{ file, from, to, want string }{
		{"worker.yaml", "hostUsers:", "hostUser:", `unknown field "spec.template.spec.hostUser"`},
		{"worker.yaml", "procMount:", "procmount:", `unknown field`},
		{"dispatcher.yaml", "containerPort: 8080", "port: 8080", `unknown field`},
		{"dispatcher.yaml", "unhealthyPodEvictionPolicy:", "unhealthyPodEviction:", `unknown field`},
		{"dispatcher.yaml", "pathType:", "pathtype:", `unknown field`},
		{"networkpolicy.yaml", "podSelector:", "selector:", `unknown field`},
		{"worker.yaml", "pollingInterval: {{", "pollInterval: {{", `unknown field "spec.pollInterval"`},
		{"worker.yaml", "cooldownPeriod:", "pollingInterval:", `already set in map`},
		{"claims.yaml", "requests: {storage", "request: {storage", `unknown field`},
		{"dispatcher.yaml", "apiVersion: apps/v1", "apiVersion: apps/v2", `no "apps/v2 Deployment"`},
		{"dispatcher.yaml", "maxSurge: 1}", "maxSurge: [1]}", `cannot unmarshal`},
		{"worker.yaml", "$w.tmpSize", "$w.tempSize", `no entry for key "tempSize"`},
		{"serviceaccount.yaml", "name: {{", "generateName: {{", `no name`},
	} {
		o := load(t)
		changed := false
		for _, f := range o.Templates {
			if f.Name == "templates/"+c.file {
				text := strings.Replace(string(f.Data), c.from, c.to, 1)
				changed = text != string(f.Data)
				f.Data = []byte(text)
			}
		}
		if !changed {
			t.Errorf("%s has no %q", c.file, c.from)
			continue
		}
		if _, err := render(t.Context(), o, values(t, "large")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q: %v, want %q", c.file, c.to, err, c.want)
		}
	}
}

// TestValues: values that mean nothing, or too little, are refused, and the error says which.
func TestValues(t *testing.T) {
	for _, c := range []struct{ with, want string }{
		{"{}", "/nats/url"},
		{"nats: {url: 'nats:4222'}", "/nats/url"},
		{someNATS + "\nreplicas: 3", "'replicas'"},
		{someNATS + "\nworkers: {general: {slots: 3}}", "'slots'"},
		{someNATS + "\nworkers: {general: {classes: [WRITE]}}", "/workers/general/classes/0"},
		{someNATS + "\nworkers: {General: {}}", "'General'"},
		{someNATS + "\ndispatcher: {settings: {listen: '0.0.0.0:1'}}", "'listen'"},
		{someNATS + "\nworkerDefaults: {settings: {Queue_Wait: 1m}}", "'Queue_Wait'"},
		{someNATS + "\nworkerDefaults: {workspaces: [{name: default, path: /w, claim: none}]}", "claim none"},
		{someNATS + "\nworkerDefaults: {workspaces: [{name: default, path: /w}]}", "/workerDefaults/workspaces/0"},
		{someNATS + "\nworkers: {general: {autoscaling: {enabled: true}}}", "prometheus.url"},
		{someNATS + "\ndispatcher: {ingress: {enabled: true}}", "dispatcher.ingress.host"},
		{someNATS + "\ndispatcher: {maxUnavailable: some}", "/dispatcher/maxUnavailable"},
	} {
		if _, err := render(t.Context(), load(t), c.with); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.with, err, c.want)
		}
	}
}
