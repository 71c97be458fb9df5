package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

var update = flag.Bool("update", false, "write deploy/seccomp.json anew")

// sandboxCalls are the system calls that the native sandbox makes and that Docker's default profile forbids to a
// container without capabilities. docs/sandbox.md names them too.
const sandboxCalls = "clone mount umount2 pivot_root sethostname fsopen fsconfig fsmount move_mount open_tree " +
	"mount_setattr"

// TestSeccomp: the profile of workers is Docker's default profile and the system calls of the sandbox, and nothing
// else.
func TestSeccomp(t *testing.T) {
	profile := seccomp.DefaultProfile()
	profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{
		LinuxSyscall: specs.LinuxSyscall{Names: strings.Fields(sandboxCalls), Action: specs.ActAllow},
		Comment:      "the sandbox of Toolyard's commands",
	})
	want, err := json.MarshalIndent(profile, "", "\t")
	must.OK(t, err)
	want = append(want, '\n')
	const path = "../../deploy/seccomp.json"
	if *update {
		must.OK(t, os.WriteFile(path, want, 0o644))
	}
	got := must.Read(t, path)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not Docker's default profile with the system calls of the sandbox; run "+
			"\"GOWORK=off go -C test/deploy test -run TestSeccomp -update\"", path)
	}
	decode := json.NewDecoder(bytes.NewReader(got))
	decode.DisallowUnknownFields()
	var read seccomp.Seccomp
	must.OK(t, decode.Decode(&read))
	sandbox := must.Read(t, "../../docs/sandbox.md")
	if !strings.Contains(strings.Join(strings.Fields(string(sandbox)), " "), "`"+sandboxCalls+"`") {
		t.Errorf("docs/sandbox.md does not name these system calls: %s", sandboxCalls)
	}
	names := read.Syscalls[len(read.Syscalls)-1].Names
	if !slices.Contains(names, "pivot_root") {
		t.Errorf("the last rule of %s allows %v", path, names)
	}
}
