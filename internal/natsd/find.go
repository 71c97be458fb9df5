package natsd

import (
	"errors"
	"io/fs"
	"os"

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
