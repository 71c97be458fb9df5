package natsd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolyard/toolyard/internal/access"
)

// FindCreds returns the file of a principal's credentials in a directory. Those of a principal that has none are made
// where the directory has the keys. [fs.ErrNotExist] says that there are none, and nothing to make them with.
func FindCreds(dir string, p access.Principal) (string, error) {
	for _, first := range []bool{true, false} {
		path := CredsFile(dir, p, first)
		if _, err := os.Stat(path); err != nil { // also a name that is too long
			continue
		}
		creds, err := ReadCreds(path)
		if err != nil {
			return "", err
		}
		if whose, ours := creds.Principal(); ours && whose == p {
			return path, nil
		}
	}
	path, err := MakeCreds(dir, p)
	if errors.Is(err, ErrNoKeys) {
		return "", fs.ErrNotExist
	}
	return path, err
}

// matching returns the files in a directory whose names fit a pattern. The directory may have any name: in a pattern of
// a whole path, a bracket in it would find nothing.
func matching(dir, pattern string) ([]string, error) {
	paths, err := fs.Glob(os.DirFS(dir), pattern)
	for i := range paths {
		paths[i] = filepath.Join(dir, paths[i])
	}
	return paths, err
}
