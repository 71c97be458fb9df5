package policy

import "testing"

// TestSourcedSubstitutions: what a shell reads from a substitution stands in the command line, as its input does.
func TestSourcedSubstitutions(t *testing.T) {
	for _, line := range []string{
		". <(echo 'rm x')", "source <(echo 'rm x')", "source /dev/fd/3 3< <(echo 'rm x')", `f=/dev/stdin; . "$f"`,
		`f=/dev; . "$f/stdin" <<< 'rm x'`, `. /dev/fd/"$f"`, `. /dev/std*`, `. /dev/[s]tdin`, "builtin . <(echo 'rm x')",
	} {
		if !denies(t, line) {
			t.Errorf("rm is denied, and not %q", line)
		}
	}
	for _, line := range []string{
		`. "$HOME/.nvm/nvm.sh"`, "source ~/.bashrc", "source $VENV/bin/activate && ls", ". ./env *",
		`source "$(conda info --base)/etc/profile.d/conda.sh"`,
	} {
		if denies(t, line) {
			t.Errorf("%q runs no rm, and is denied", line)
		}
	}
}
