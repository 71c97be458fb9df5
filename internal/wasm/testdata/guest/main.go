// Command guest does what its first argument says, as a module that means no good.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"time"
)

func main() {
	if err := act(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(3)
	}
}

var keep [][]byte

func act(what string, args []string) error {
	switch what {
	case "echo":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "env":
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"args": os.Args, "env": os.Environ()})
	case "progress":
		fmt.Fprintln(os.Stderr, "half done")
		time.Sleep(time.Millisecond)
		return nil
	case "read":
		for _, name := range args {
			b, err := os.ReadFile(name)
			if err != nil {
				fmt.Println(name, "error:", err)
			} else {
				fmt.Println(name, "content:", string(b))
			}
		}
		return nil
	case "list":
		return fs.WalkDir(os.DirFS(args[0]), ".", func(p string, _ fs.DirEntry, err error) error {
			fmt.Println(p, err)
			return nil
		})
	case "change":
		at := args[0]
		for name, do := range map[string]func() error{
			"write":   func() error { return os.WriteFile(at+"/new", []byte("x"), 0o644) },
			"append":  func() error { return appendTo(at + "/note.txt") },
			"cut":     func() error { return os.Truncate(at+"/note.txt", 0) },
			"mkdir":   func() error { return os.Mkdir(at+"/dir2", 0o755) },
			"remove":  func() error { return os.Remove(at + "/note.txt") },
			"rename":  func() error { return os.Rename(at+"/note.txt", at+"/other.txt") },
			"link":    func() error { return os.Link(at+"/note.txt", at+"/other.txt") },
			"symlink": func() error { return os.Symlink("/etc/passwd", at+"/other.txt") },
			"touch":   func() error { return os.Chtimes(at+"/note.txt", time.Unix(1, 0), time.Unix(1, 0)) },
		} {
			if err := do(); err == nil {
				fmt.Println("did", name)
			}
		}
		if _, err := net.DialTimeout("tcp", "127.0.0.1:1", time.Second); err == nil {
			fmt.Println("did dial")
		}
		if _, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
			fmt.Println("did listen") // Go's own, in the module's memory: nobody else can reach it
		}
		if err := exec.Command("/bin/true").Run(); err == nil {
			fmt.Println("did start a process")
		}
		return nil
	case "memory":
		for {
			keep = append(keep, make([]byte, 1<<20))
		}
	case "loop":
		for n := 0; ; n++ {
			if n < 0 {
				fmt.Println(n)
			}
		}
	case "sleep":
		time.Sleep(time.Hour)
		return nil
	case "output":
		b := make([]byte, 64<<10)
		for {
			if _, err := os.Stdout.Write(b); err != nil {
				continue // it goes on whatever it is told
			}
		}
	case "files":
		for n := 0; ; n++ {
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("after %d: %w", n, err)
			}
			open = append(open, f)
		}
	case "recurse":
		fmt.Println(recurse(1))
		return nil
	case "crash":
		var p *int
		*p = 1
		return nil
	}
	return fmt.Errorf("nothing is called %q", what)
}

var open []*os.File

func recurse(n int) int { return recurse(n+1) + n }

func appendTo(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("more")
	return err
}
