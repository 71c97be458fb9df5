//go:build unix

package e2e

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// approvalService starts the example, and returns its address.
func approvalService(t *testing.T, secret string) string {
	t.Helper()
	cmd := exec.Command("python3", "../../examples/approval_service.py", secret)
	cmd.Env = append(os.Environ(), "PORT=0", "SLACK_SIGNING_SECRET=of-slack")
	cmd.Stderr = &prefixed{t: t, name: "service"}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.OK(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must.OK(t, err)
	return strings.TrimSpace(strings.TrimPrefix(line, "service: "))
}

// post posts a form, and returns what the service says.
func post(t *testing.T, to string, form url.Values, header http.Header) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(form.Encode()))
	must.OK(t, err)
	if header != nil {
		req.Header = header
	}
	res, err := http.DefaultClient.Do(req)
	must.OK(t, err)
	defer res.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(res.Body)
	must.OK(t, err)
	return res.StatusCode, string(body)
}

// TestAnApprovalServiceDecides: the example is asked about each call that waits, and its buttons decide: that of a
// page, and that of Slack.
func TestAnApprovalServiceDecides(t *testing.T) {
	t.Parallel()
	secret := must.File(t, "relay.secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=\n")
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t)
	worker(t, d.says["nats"], dir)
	service := approvalService(t, secret)
	relay := start(t, 1, "dispatcher", "relay", "--nats", d.says["nats"], "--to", service+"/questions",
		"--relay-secret-file", secret, "--listen", "127.0.0.1:0")
	write := func(name string) json.RawMessage {
		return input(map[string]any{"file_path": name, "content": "<b>" + name + "</b>\n"})
	}
	file := batchFile(t, toolyard.Batch{Agent: "agent-1", ID: "asks", Session: "s-1", Interactive: true,
		Calls: []toolyard.Call{{ID: "c1", Tool: "write_file", Input: write("allowed.txt")},
			{ID: "c2", Tool: "write_file", Input: write("denied.txt")}}})
	submitted := make(chan string, 1)
	go func() {
		stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json", file)
		submitted <- stdout
	}()
	// asked waits for the page to show a question with a text, and returns its id.
	asked := func(text string) string {
		const pause = 50 * time.Millisecond
		for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(pause) {
			res, err := http.Get(service)
			must.OK(t, err)
			page, err := io.ReadAll(res.Body)
			must.OK(t, res.Body.Close())
			must.OK(t, err)
			found := regexp.MustCompile(`(?s)<pre>(.*?)</pre>.*?value=(ask_[0-9a-f]+)>`).FindAllSubmatch(page, -1)
			for _, f := range found {
				if strings.Contains(string(f[1]), text) && !strings.Contains(string(f[1]), "<b>") {
					return string(f[2])
				}
			}
		}
		t.Fatalf("nobody was asked about %s within a minute", text)
		return ""
	}
	first := asked("allowed.txt")
	if status, text := post(t, service+"/decide", url.Values{"question": {first}, "decision": {"allow"}},
		nil); status != http.StatusOK || !strings.HasPrefix(text, "allow: write_file") {
		t.Fatalf("the page's button: %d, %s", status, text)
	}
	second := asked("denied.txt")
	click, err := json.Marshal(map[string]any{"type": "block_actions", "user": map[string]string{"username": "ann"},
		"actions": []map[string]string{{"action_id": "deny", "value": "deny:" + second}}})
	must.OK(t, err)
	form, at := url.Values{"payload": {string(click)}}, strconv.FormatInt(time.Now().Unix(), 10)
	for _, key := range []string{"of-somebody-else", "of-slack"} {
		mac := hmac.New(sha256.New, []byte(key))
		fmt.Fprintf(mac, "v0:%s:%s", at, form.Encode())
		status, text := post(t, service+"/slack", form, http.Header{"X-Slack-Request-Timestamp": {at},
			"X-Slack-Signature": {"v0=" + hex.EncodeToString(mac.Sum(nil))}})
		want := key == "of-slack"
		if (status == http.StatusOK) != want || want && !strings.Contains(text, "slack:ann") {
			t.Errorf("a click signed with the key %s: %d, %s", key, status, text)
		}
	}
	results := viewOf(t, <-submitted).Results
	if len(results) != 2 || results[0].IsError || results[1].Code != toolyard.ApprovalRejected {
		t.Fatalf("the results are %+v", results)
	}
	if _, err := os.Stat(filepath.Join(dir, "allowed.txt")); err != nil {
		t.Error(err)
	}
	log := said(t, "replay", "--nats", d.says["nats"], "--agent", "agent-1", "--json", "asks")
	if !strings.Contains(log, "slack:ann") {
		t.Errorf("the log does not say who decided: %s", log)
	}
	if status := relay.stop(syscall.SIGTERM); status != 0 || relay.logged("interrupted") != 0 {
		t.Errorf("a relay that is told to stop ends with %d", status)
	}
}

// TestARelayThatCannotBeTrusted is refused at the start.
func TestARelayThatCannotBeTrusted(t *testing.T) {
	t.Parallel()
	short := must.File(t, "short", "whsec_AAAA")
	good := must.File(t, "good", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	for want, args := range map[string][]string{
		"--relay-secret-file is required": {"--to", "https://x/"},
		"24 to 64 random bytes":           {"--to", "https://x/", "--relay-secret-file", short},
		"in the clear":                    {"--to", "http://example.com/", "--relay-secret-file", good},
		"write https://HOST/PATH":         {"--relay-secret-file", good},
		"--callback http://example.com/": {"--to", "https://x/", "--callback", "http://example.com/",
			"--relay-secret-file", good},
	} {
		if _, stderr, status := run(t, nil, "dispatcher", append([]string{"relay"}, args...)...); status != 2 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%q: status %d, %s", args, status, stderr)
		}
	}
}
