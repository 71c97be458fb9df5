package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// The standard variables, as OpenTelemetry specifies them. What the SDK reads by itself is not here:
// OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_SPAN_*, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envMetricInterval = "OTEL_METRIC_EXPORT_INTERVAL"
	prefixOTLP        = "OTEL_EXPORTER_OTLP_"
	suffixEndpoint    = "ENDPOINT"

	defaultEndpoint = "http://localhost:4318"
)

const (
	// defaultTimeout is how long one export may take, where OTEL_EXPORTER_OTLP_TIMEOUT does not say it.
	defaultTimeout = 10 * time.Second
	// defaultInterval is how often metrics are sent, where OTEL_METRIC_EXPORT_INTERVAL does not say it.
	defaultInterval = time.Minute
	// minInterval is the shortest that it may say.
	minInterval = 100 * time.Millisecond
)

// signal is one kind of telemetry.
type signal struct{ name, exporter, path string }

var (
	traces  = signal{"TRACES", "OTEL_TRACES_EXPORTER", "/v1/traces"}
	metrics = signal{"METRICS", "OTEL_METRICS_EXPORTER", "/v1/metrics"}
)

// target is where one signal goes, and how.
type target struct {
	url     string
	shown   string // the URL without a password
	headers map[string]string
	timeout time.Duration
	gzip    bool
	tls     *tls.Config
}

// env looks up environment variables. One that is empty counts as not set.
type env func(name string) string

// of reads a variable of OTLP: that of the signal, else that of all signals.
func (e env) of(s signal, suffix string) (value, name string) {
	for _, name := range []string{prefixOTLP + s.name + "_" + suffix, prefixOTLP + suffix} {
		if v := strings.TrimSpace(e(name)); v != "" {
			return v, name
		}
	}
	return "", ""
}

// VariableError says which variable is wrong, and how.
type VariableError struct{ Name, Value, Problem string }

// hidden stands for a value that may be a secret.
const hidden = "…"

func (e *VariableError) Error() string { return fmt.Sprintf("%s=%q: %s", e.Name, e.Value, e.Problem) }

// wanted reports whether a signal is to be sent: an exporter is named, or an endpoint where none is.
func (e env) wanted(s signal) (bool, error) {
	if strings.EqualFold(strings.TrimSpace(e(envDisabled)), "true") {
		return false, nil
	}
	switch v := strings.TrimSpace(e(s.exporter)); v {
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	case "":
		at, _ := e.of(s, suffixEndpoint)
		return at != "", nil
	default:
		return false, &VariableError{s.exporter, v, "use otlp or none"}
	}
}

// target reads where a signal goes.
func (e env) target(s signal) (t target, err error) {
	at, err := e.endpoint(s)
	if err != nil {
		return t, err
	}
	t.url, t.shown = at.String(), at.Redacted()
	if v, name := e.of(s, "PROTOCOL"); v != "" && v != "http/protobuf" {
		return t, &VariableError{name, v, "use http/protobuf; this program speaks no other"}
	}
	switch v, name := e.of(s, "COMPRESSION"); v {
	case "gzip":
		t.gzip = true
	case "", "none":
	default:
		return t, &VariableError{name, v, "use gzip or none"}
	}
	if t.timeout, err = e.milliseconds(s, "TIMEOUT", defaultTimeout); err != nil {
		return t, err
	}
	if t.headers, err = e.headers(s); err != nil {
		return t, err
	}
	t.tls, err = e.tls(s)
	return t, err
}

// endpoint is the URL of a signal: its own as it is, that of all signals with the signal's path.
func (e env) endpoint(s signal) (*url.URL, error) {
	v, name := e.of(s, suffixEndpoint)
	if v == "" {
		v = defaultEndpoint
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &VariableError{name, hidden, "use a URL such as http://localhost:4318"} // it may hold a password
	}
	if name != prefixOTLP+s.name+"_"+suffixEndpoint {
		u = u.JoinPath(s.path)
	} else if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// headers reads pairs of names and values, of which each may be percent-encoded. They may hold a secret, and no error
// shows one.
func (e env) headers(s signal) (map[string]string, error) {
	v, name := e.of(s, "HEADERS")
	out := map[string]string{}
	for pair := range strings.SplitSeq(v, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || key == "" ||
			strings.ContainsAny(key, " \t:\r\n") || strings.ContainsAny(value, "\r\n") {
			return nil, &VariableError{name, hidden, "use NAME=VALUE,NAME=VALUE with values that are percent-encoded"}
		}
		out[http.CanonicalHeaderKey(key)] = value
	}
	return out, nil
}

// milliseconds reads a duration.
func (e env) milliseconds(s signal, suffix string, otherwise time.Duration) (time.Duration, error) {
	v, name := e.of(s, suffix)
	return duration(name, v, otherwise)
}

func duration(name, v string, otherwise time.Duration) (time.Duration, error) {
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n <= 0 {
		return 0, &VariableError{name, v, "use a positive number of milliseconds"}
	}
	return time.Duration(n) * time.Millisecond, nil
}

// tls reads the certificates; nil when no variable names any.
func (e env) tls(s signal) (*tls.Config, error) {
	ca, caName := e.of(s, "CERTIFICATE")
	cert, certName := e.of(s, "CLIENT_CERTIFICATE")
	key, keyName := e.of(s, "CLIENT_KEY")
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, &VariableError{caName, ca, err.Error()}
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &VariableError{caName, ca, "has no certificate"}
		}
	}
	if cert == "" && key == "" {
		return out, nil
	}
	if cert == "" || key == "" {
		return nil, &VariableError{certName + keyName, cert + key, "a client's certificate and its key go together"}
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, &VariableError{certName, cert, err.Error()}
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}
