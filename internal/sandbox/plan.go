package sandbox

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// The user of commands inside. Outside it is the worker's own user, or a dedicated one if the worker is root.
const (
	insideUID = 1000
	insideGID = 1000
)

// machine is what a plan needs to know about this machine. It is determined once.
type machine struct {
	// System are the places that every command sees read-only: what programs need to run.
	System []place
	// Devices are those of /dev that every command has.
	Devices []string
	// HostUID and HostGID are the user and group of commands outside.
	HostUID, HostGID int
	Namespaces       map[string]string
	// Path is the worker's PATH; a command's PATH has those of its directories that the command sees.
	Path   []string
	Limits kernelLimits
	// Filter is the system call filter for everything inside, Own that of the command alone.
	Filter, Own []byte
}

// place is a directory, a file or a symbolic link of the machine.
type place struct {
	Path string
	Dir  bool
	To   string // a link's target
}

// kernelLimits are the kernel's numbers of its limits.
type kernelLimits struct {
	Core, CPU, AS, Data, FSize, NoFile, NProc, Stack, MemLock, MsgQueue, SigPending, Nice, RTPrio int
}

// systemPaths are what programs need to run. All of them are the same for every user of the machine: no keys, no hosts,
// no users, and no directory with sockets.
var systemPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
	"/etc/mime.types",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs",
	"/etc/pki/ca-trust/extracted",
	"/etc/protocols", "/etc/services",
}

// devicePaths are devices that reveal nothing of the machine.
var devicePaths = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// never are directories that are never shown: the kernel's own, and those where services listen. A socket there answers
// anyone who can name it, read-only or not.
var never = []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/boot"}

// The bounds of a command line.
const (
	maxArgBytes  = 128 << 10 // the kernel's own
	maxArgvBytes = 1 << 20
	maxEnvBytes  = 256 << 10
	maxSecrets   = 64
)

// Files that programs look for, without data of the machine.
var etcFiles = map[string]string{
	"etc/passwd":        "sandbox:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
	"etc/group":         "sandbox:x:1000:\nnogroup:x:65534:\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	"etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"etc/hostname":      hostname + "\n",
	"etc/resolv.conf":   "",
}

const (
	hostname = "sandbox"
	// tick is how often the stage measures what the command uses.
	tick = 25 * time.Millisecond
	// dataOverMemory is how much more than Memory one process may map: memory that it does not touch costs nothing, and
	// the stage stops a process that touches it, and reports that.
	dataOverMemory = 4
	// leastData is the lowest such limit for one process: the init has the same limit as the command, and needs memory
	// itself.
	leastData = 1 << 30
	// addressesOverMemory is how much larger than Memory one process's address space may be. The page tables of a fully
	// used one are then as large as Memory. leastAddresses is the lowest limit.
	addressesOverMemory = 512
	leastAddresses      = 32 << 30
)

// userLimits are limits on what the kernel counts per user, and so for the worker and all processes of the same user
// outside. In the sandbox's own user namespace they are lower, so that a command cannot use up the machine's. No
// further namespace can be made in it.
var userLimits = []stage.Setting{
	{Path: "user/max_inotify_instances", Value: strconv.Itoa(maxInotifyInstances)},
	{Path: "user/max_inotify_watches", Value: strconv.Itoa(maxInotifyWatches)},
	{Path: "user/max_fanotify_groups", Value: "0"}, {Path: "user/max_fanotify_marks", Value: "0"},
	{Path: "user/max_user_namespaces", Value: "0"}, // without a user namespace no other can be made
}

// socketLimits bound the memory of one TCP connection; only the loopback can use it.
var socketLimits = []stage.Setting{{Path: "net/ipv4/tcp_wmem", Value: "4096 16384 262144"},
	{Path: "net/ipv4/tcp_rmem", Value: "4096 131072 262144"}}

const (
	maxInotifyInstances = 32
	maxInotifyWatches   = 16_384
	// maxSockets bounds the open sockets of a command with all that it starts. The kernel counts their memory for
	// nobody: a full one uses about 400 KiB.
	maxSockets = 1024
	// filesFree is how many more files the file system of a writable workspace must have room for, if the command has
	// made more than filesStep; DiskFree is the same for bytes.
	filesFree = 64 << 10
	filesStep = 4096
)

// plan turns a policy and a command into the stage's input: the root, which is the same for all commands of a policy,
// and the command's own part. It is pure: the same arguments give the same plan.
func plan(p Policy, c Command, m *machine, ws *leased) (*stage.Root, *stage.Spec, error) {
	l, err := p.Limits.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	base := &stage.Root{
		Build: true, Bytes: l.Scratch, Inodes: max(l.Scratch>>20, 1) * scratchFilesPerMiB, Hostname: hostname,
		Open: []string{"tmp", "dev/shm"}, Filter: m.Filter, Own: m.Own,
		UID: insideUID, GID: insideGID, HostUID: m.HostUID, HostGID: m.HostGID, Namespaces: m.Namespaces,
		UserLimits: userLimits, SocketLimits: socketLimits,
	}
	s := &stage.Spec{
		Argv: c.Argv, Dir: c.Dir,
		Rlimits: rlimits(l, m.Limits), Memory: l.Memory, CPU: l.CPU, Sockets: maxSockets, Tick: tick,
		Writable: []string{"/tmp", "/dev/shm"}, Scratch: []string{"/tmp"},
	}
	if err := checkArgv(c.Argv); err != nil {
		return nil, nil, err
	}
	r := root{base: base, spec: s, made: map[string]bool{}, dirs: &base.Dirs}
	for _, d := range []stage.Dir{{Path: "proc", Mode: 0o555}, {Path: "tmp", Mode: 0o1777}, {Path: "dev", Mode: 0o755},
		{Path: "dev/shm", Mode: 0o1777},
		{Path: "etc", Mode: 0o755}, {Path: "run", Mode: 0o755}, {Path: "run/secrets", Mode: 0o700}} {
		r.dir(d.Path, d.Mode)
	}
	for _, file := range slices.Sorted(maps.Keys(etcFiles)) {
		base.Files = append(base.Files, stage.File{Path: file, Mode: 0o444, Content: []byte(etcFiles[file])})
	}
	for _, pl := range m.System {
		r.show(pl)
	}
	for _, l := range [][2]string{{"dev/fd", "/proc/self/fd"}, {"dev/stdin", "fd/0"}, {"dev/stdout", "fd/1"},
		{"dev/stderr", "fd/2"}} {
		base.Links = append(base.Links, stage.Link{Path: l[0], To: l[1]})
	}
	for _, d := range m.Devices {
		source := d
		if d == "/dev/zero" { // mapping it creates memory; this one reads the same and cannot be mapped
			source = "/dev/full"
		}
		base.Binds = append(base.Binds, stage.Bind{Source: source, Target: d[1:], ReadOnly: true, Device: true})
	}
	for _, read := range p.Read {
		if err := checkShown("the path to read", read); err != nil {
			return nil, nil, err
		}
		r.parents(read[1:])
		base.Binds = append(base.Binds, stage.Bind{Source: read, Target: read[1:], ReadOnly: true, IsDir: true})
	}
	r.dirs = &s.Dirs // from here on the directories belong to this command
	if err := r.secrets(p.Secrets); err != nil {
		return nil, nil, err
	}
	if s.Dir == "" {
		s.Dir = "/tmp"
	}
	if ws != nil {
		if err := r.workspace(ws, m.System); err != nil {
			return nil, nil, err
		}
		if c.Dir == "" {
			s.Dir = ws.dir
		}
		if ws.writable {
			s.Writable = append(s.Writable, ws.dir)
			s.DiskFree, s.DiskStep, s.FilesFree, s.FilesStep = l.DiskFree, diskStep, filesFree, filesStep
		}
	}
	if err := cleanPath("the working directory", s.Dir); err != nil {
		return nil, nil, err
	}
	if k := p.Keep; k != nil {
		s.Keep = &stage.Keep{From: k.From != nil, To: k.To != nil, Dir: "/tmp", Note: k.Note, MaxNote: k.MaxNote,
			Bytes: k.Bytes, Names: k.Names}
	}
	proxied := len(p.Network.Allow) > 0
	if proxied && p.Serve != nil {
		return nil, nil, fmt.Errorf("%w: a policy has either a network or a port to the worker", ErrViolation)
	}
	s.Proxy = proxied || p.Serve != nil
	s.Env, err = environment(p.Env, m.searchPath(p.Read), proxied)
	return base, s, err
}

// root is the planned root.
type root struct {
	base *stage.Root
	spec *stage.Spec
	made map[string]bool
	dirs *[]stage.Dir // the list for new directories
}

func (r *root) dir(at string, mode uint32) {
	if !r.made[at] {
		r.made[at] = true
		*r.dirs = append(*r.dirs, stage.Dir{Path: at, Mode: mode})
	}
}

// parents plans the parent directories of a mount, up to the first one that another mount provides.
func (r *root) parents(at string) {
	names := strings.Split(at, "/")
	for i := 1; i < len(names); i++ {
		dir := strings.Join(names[:i], "/")
		if slices.ContainsFunc(r.base.Binds, func(b stage.Bind) bool { return b.Target == dir }) {
			return
		}
		r.dir(dir, 0o755)
	}
}

func (r *root) show(p place) {
	r.parents(p.Path[1:])
	if p.To != "" {
		r.base.Links = append(r.base.Links, stage.Link{Path: p.Path[1:], To: p.To})
		return
	}
	r.base.Binds = append(r.base.Binds, stage.Bind{Source: p.Path, Target: p.Path[1:], IsDir: p.Dir, ReadOnly: true})
}

func (r *root) workspace(ws *leased, system []place) error {
	if err := checkShown("the workspace", ws.dir); err != nil {
		return err
	}
	for _, p := range system {
		if p.Path == ws.dir || strings.HasPrefix(p.Path, ws.dir+"/") {
			return fmt.Errorf("%w: the workspace %s holds %s of the system", ErrViolation, ws.dir, p.Path)
		}
	}
	r.parents(ws.dir[1:])
	r.spec.Binds = append(r.spec.Binds, stage.Bind{Source: ws.dir, Prepared: ws.fd != 0, Dev: ws.dev, Ino: ws.ino,
		Target: ws.dir[1:], IsDir: true, ReadOnly: !ws.writable})
	r.spec.Workspace, r.spec.Protect = ws.dir, ws.protect
	r.mask(ws.masks)
	return nil
}

func (r *root) secrets(secrets []Secret) error {
	if len(secrets) > maxSecrets {
		return fmt.Errorf("%w: %d secrets; at most %d", ErrViolation, len(secrets), maxSecrets)
	}
	for _, s := range secrets {
		if s.Name == "" || s.Name == "." || s.Name == ".." || strings.ContainsAny(s.Name, "/\x00") ||
			!utf8.ValidString(s.Name) {
			return fmt.Errorf("%w: %q is no name of a secret", ErrViolation, s.Name)
		}
		r.spec.Files = append(r.spec.Files, stage.File{Path: "run/secrets/" + s.Name, Mode: 0o400, Content: s.Content})
	}
	return nil
}

// checkShown refuses what is never shown: the whole machine, and the directories of [never].
func checkShown(what, p string) error {
	if err := cleanPath(what, p); err != nil {
		return err
	}
	for _, n := range never {
		if p == "/" || p == n || strings.HasPrefix(p, n+"/") {
			return fmt.Errorf("%w: %s is %s", ErrViolation, what, p)
		}
	}
	return nil
}

func checkArgv(argv []string) error {
	total := 0
	for _, a := range argv {
		total += len(a) + 1
		if len(a) >= maxArgBytes || strings.ContainsRune(a, 0) || !utf8.ValidString(a) {
			return fmt.Errorf("%w: an argument is too long, or holds a NUL or bytes that are not UTF-8", ErrViolation)
		}
	}
	if len(argv) == 0 || argv[0] == "" || total > maxArgvBytes {
		return fmt.Errorf("%w: a command line of %d arguments and %d bytes", ErrViolation, len(argv), total)
	}
	return nil
}

// environment is exactly what the command gets, sorted.
func environment(own map[string]string, searchPath string, proxy bool) ([]string, error) {
	all := maps.Clone(BaseEnv)
	all["PATH"] = searchPath
	if proxy {
		url := fmt.Sprintf("http://127.0.0.1:%d", stage.ProxyPort)
		for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
			"all_proxy"} {
			all[name] = url
		}
		all["no_proxy"], all["NO_PROXY"] = "localhost,127.0.0.1,::1", "localhost,127.0.0.1,::1"
	}
	maps.Copy(all, own)
	var env []string
	total := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entry := name + "=" + all[name]
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(entry, 0) ||
			!utf8.ValidString(entry) {
			return nil, fmt.Errorf("%w: %q is no environment variable", ErrViolation, name)
		}
		total += len(entry) + 1
		env = append(env, entry)
	}
	if total > maxEnvBytes {
		return nil, fmt.Errorf("%w: an environment of %d bytes; at most %d", ErrViolation, total, maxEnvBytes)
	}
	return env, nil
}

func rlimits(l Limits, k kernelLimits) []stage.Rlimit {
	const stack, lockedBytes, signals = 8 << 20, 64 << 10, 1024
	cpu := uint64((l.CPU + time.Second - 1) / time.Second)
	same := func(resource int, v uint64) stage.Rlimit { return stage.Rlimit{Resource: resource, Soft: v, Max: v} }
	return []stage.Rlimit{
		same(k.Core, 0), {Resource: k.CPU, Soft: cpu, Max: cpu + 1},
		same(k.AS, max(addressesOverMemory*uint64(l.Memory), leastAddresses)),
		same(k.Data, max(dataOverMemory*uint64(l.Memory), leastData)), same(k.FSize, uint64(l.FileSize)),
		same(k.NoFile, uint64(l.Files)), same(k.NProc, uint64(l.Processes+initProcesses)),
		{Resource: k.Stack, Soft: stack, Max: 8 * stack},
		same(k.MemLock, lockedBytes), same(k.MsgQueue, 0), same(k.SigPending, signals), same(k.Nice, 0),
		same(k.RTPrio, 0),
	}
}

// searchPath is a command's PATH: the directories of the worker's PATH that it sees, and the usual ones.
func (m *machine) searchPath(read []string) string {
	visible := slices.Clone(read)
	for _, p := range m.System {
		visible = append(visible, p.Path)
	}
	var dirs []string
	for _, dir := range slices.Concat(m.Path, strings.Split(BaseEnv["PATH"], ":")) {
		seen := slices.ContainsFunc(visible, func(v string) bool { return dir == v || strings.HasPrefix(dir, v+"/") })
		if seen && path.Clean(dir) == dir && utf8.ValidString(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}
