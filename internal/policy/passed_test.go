package policy

import "testing"

// TestSourcedSubstitutions: what a shell reads from a substitution stands in the command line, as its input does.
func TestSourcedSubstitutions(t *testing.T) {
	for _, line := range []string{
		". <(echo 'rm x')", "source <(echo 'rm x')", "source /dev/fd/3 3< <(echo 'rm x')", `f=/dev/stdin; . "$f"`,
		`f=/dev; . "$f/stdin" <<< 'rm x'`, `. /dev/fd/"$f"`, `. /dev/std*`, `. /dev/[s]tdin`,
		"builtin . <(echo 'rm x')",
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

// TestAliasesOfGit: an alias without a "!" is a command of git's own.
func TestAliasesOfGit(t *testing.T) {
	for _, line := range []string{
		"git -c alias.p=push p origin", "git -c alias.p='push --force' p", "git -c ALIAS.P=push p",
		"git -c alias.p='-C . push' p",
		"git config alias.p push", "git config --global alias.p 'push origin'", "git config set alias.p push",
		"git config set --global alias.p 'push origin' && git p", "git -c alias.a.command=push a",
		"git -c alias.a='-c alias.b=push b' a", "sudo git -c alias.p=push p", "git -c \"alias.p=$x\" p",
		"git --config-env=alias.p=X p", "git --config-env alias.p=X p", "git config alias.p \"$x\"",
		"git -c alias.p='pu\"sh\"' p", "git clone -c alias.p=push a", "git config --add Alias.p push",
	} {
		if !deniesBy(t, "bash(git push:*)", line) {
			t.Errorf("git push is denied, and not %q", line)
		}
	}
	for _, line := range []string{
		"git -c alias.p=pull p", "git config alias.st status", "git config --get alias.p", "git -c core.pager=cat log",
		"git -c user.name=push log", "git config user.name \"$x\"",
	} {
		if deniesBy(t, "bash(git push:*)", line) {
			t.Errorf("%q pushes nothing, and is denied", line)
		}
	}
}

// TestProgramsOfGit: the values of options that git runs are commands, however the option is written.
func TestProgramsOfGit(t *testing.T) {
	for _, line := range []string{
		"git filter-branch --tree-filter 'rm -f key' HEAD", "git filter-branch --index-filter='rm x'",
		"git rebase -ix 'rm x' main", "git rebase -x'rm x' main", "git rebase --exe 'rm x' main",
		"git -C a rebase --exec='rm x'", "git difftool -x 'rm x'", "git difftool -yx 'rm x'",
		"git difftool --extcmd='rm x'", "git difftool --extcmd 'rm x'", "git grep -O'rm x' y", "git grep -nO'rm x' y",
		"git grep --open-files-in-pager='rm x' y", "git fetch --upload-pack 'rm x;' .", "git clone -u 'rm x;' . a",
		"git push --receive-pack='rm x;' .", "git clone --config=core.sshCommand='rm x' a",
	} {
		if !denies(t, line) {
			t.Errorf("rm is denied, and not %q", line)
		}
	}
	for _, line := range []string{
		"git switch -c \"$branch\"", "git rebase -i main", "git grep -n rm", "git log --author='rm x' --grep rm",
		"git commit -m \"it's\"", "git -c user.name=\"O'Hara\" commit", "git branch -c \"$a\" b",
		"git fetch --exclude rm",
	} {
		if denies(t, line) {
			t.Errorf("%q runs no rm, and is denied", line)
		}
	}
}

// TestNamesThatMayBeAShell: a name that is not literal may be a shell, or a program that runs others.
func TestNamesThatMayBeAShell(t *testing.T) {
	for _, line := range []string{
		"ba${x:-sh} -c 'rm y'", "sudo$x rm y", "env ba$x -c 'rm y'", "x=sh; s${x#s} -c 'rm y'", "xa$x rm < f",
		"g$x -c alias.a='!rm y' a", "ev$x 'rm y'", "nice sudo$x rm y",
		"fin$x . -exec rm {} +", "/bin/ba$x -c 'rm y'",
	} {
		if !denies(t, line) {
			t.Errorf("rm is denied, and not %q", line)
		}
	}
	for _, line := range []string{"python$v x.py", "node$x a", "cp build$x out", "nice cp build$x out"} {
		if denies(t, line) {
			t.Errorf("%q runs no rm, and is denied", line)
		}
	}
}

// TestShellsThatAreNotNamed: programs that start a shell where they have no command, or run a text that they are given.
func TestShellsThatAreNotNamed(t *testing.T) {
	for _, line := range []string{
		"sudo -s <<< 'rm x'", "sudo -i <<< 'rm x'", "sudo -u root -i <<< 'rm x'", "sudo -su root <<< 'rm x'",
		"sudo --shell <<< 'rm x'", "doas -s <<< 'rm x'", "chroot / <<< 'rm x'", "chroot --userspec=a / <<< 'rm x'",
		"unshare -r <<< 'rm x'", "unshare <<< 'rm x'", "nsenter -t 1 <<< 'rm x'", "nsenter --target 1 -m <<< 'rm x'",
		"fakeroot <<< 'rm x'", "newgrp a <<< 'rm x'", "script -q /dev/null <<< 'rm x'", "at now <<< 'rm x'",
		"batch <<< 'rm x'", "crontab - <<< '* * * * * rm x'", "crontab <<< '* * * * * rm x'", "sg a 'rm x'",
		"compgen -C 'rm x'", "compgen -W '$(rm x)'", "sudo chroot / <<< 'rm x'",
	} {
		if !denies(t, line) {
			t.Errorf("rm is denied, and not %q", line)
		}
	}
	for _, line := range []string{
		"sudo -u root ls", "sudo -k", "sudo -s ls", "sudo -l", "chroot / ls", "unshare -r ls", "nsenter -t 1 -m ls",
		"fakeroot make", "script -qc ls /dev/null", "at -l", "crontab -l", "crontab f", "compgen -c",
		"compgen -A function", "sg a ls",
	} {
		if denies(t, line) {
			t.Errorf("%q runs no rm, and is denied", line)
		}
	}
}

// TestMoreWrappers: a command is found behind the option or the word that has a program run it.
func TestMoreWrappers(t *testing.T) {
	for _, line := range []string{
		"fd -HIx rm", "fd --exec=rm", "fd -xrm", "fd -X rm", "fd --exec-batch=rm -f", "fdfind -0X sudo rm",
		"chronic rm x", "ls | ifne rm x", "sshpass -p a rm x", "npm exec -- rm x", "npm x rm", "pnpm exec rm x",
		"pnpm dlx rm x",
		"yarn exec rm x", "conda run -n a rm x", "micromamba run rm x", "hatch run rm x", "rustup run nightly rm x",
		"conda run sh -c 'rm x'", "docker exec -u 0 web rm -rf /data", "docker run --rm -v a:/b img rm x",
		"docker compose exec web sh -c 'rm x'", "podman run img rm", "kubectl exec -n a pod -- rm x", "bun x rm",
		"aws-vault exec prod -- rm x", "op run -- rm x", "pwsh -c 'rm x'", "pwsh -Command rm x", "wsl rm x",
	} {
		if !denies(t, line) {
			t.Errorf("rm is denied, and not %q", line)
		}
	}
	for _, line := range []string{
		"npm install rm", "npm run build", "fd -e rm", "fd -x ls", "fd xrm", "npm install \"$x\"", "conda install rm",
		"yarn add rm", "docker rm web", "docker run img ls", "kubectl get rm", "bun run build", "pwsh -c 'ls'",
	} {
		if denies(t, line) {
			t.Errorf("%q runs no rm, and is denied", line)
		}
	}
}

// TestProgramsByTheirPaths: a rule that denies a program by its path denies it however it is named, as one that denies
// it by its name does.
func TestProgramsByTheirPaths(t *testing.T) {
	for rule, lines := range map[string][]string{
		"bash(/usr/bin/rm:*)": {"rm x", "/bin/rm x", "/usr//bin/rm x", "sudo rm x", "sh -c 'rm x'"},
		"bash(./deploy.sh:*)": {"././deploy.sh", "cd x && ../deploy.sh", "/ws/deploy.sh a", "x/../deploy.sh",
			"$PWD/deploy.sh", "PATH=. deploy.sh"},
		"bash(scripts/deploy.sh)": {"./scripts/deploy.sh", "cd scripts && ./deploy.sh"},
	} {
		for _, line := range lines {
			if !deniesBy(t, rule, line) {
				t.Errorf("%s does not deny %q", rule, line)
			}
		}
	}
	for rule, line := range map[string]string{
		"bash(/usr/bin/rm:*)": "/usr/bin/rmdir x", "bash(./deploy.sh)": "./deploy.sh -n", "bash(./s/*)": "./t/a",
		"bash(cat ./a)": "cat b/a",
	} {
		if deniesBy(t, rule, line) {
			t.Errorf("%s denies %q", rule, line)
		}
	}
}

// TestAProgramBesideTheDirectory: behind a cd, ./run.sh is another program than the one that was allowed.
func TestAProgramBesideTheDirectory(t *testing.T) {
	allows := func(rule, line string) bool {
		req := Request{Declaration: bashTool, Input: input(t, "command", line), WorkspaceDir: "/ws"}
		_, remembered := Recalls([]string{rule}, req, "sha")
		got := Decide(Rules{Allow: mustRules(t, rule)}, req).Behavior == Allow
		if got != remembered {
			t.Errorf("%s on %q: the rule allows %t, the approval %t", rule, line, got, remembered)
		}
		return got
	}
	for rule, line := range map[string]string{
		"bash(./run.sh)": "cd docs && ./run.sh", "bash(./run.sh:*)": "cd docs && timeout 60 ./run.sh -v",
		"bash(scripts/run:*)": "(cd docs; scripts/run a)", "bash(../a)": "cd docs; ls; ../a",
		"bash(timeout 5 ./run.sh)": "cd docs && timeout 5 ./run.sh",
		"bash(./gradlew test)":     "cd /ws/docs && ./gradlew test",
	} {
		if allows(rule, line) {
			t.Errorf("%s allows %q", rule, line)
		}
	}
	for rule, line := range map[string]string{
		"bash(./run.sh)": "./run.sh; ls", "bash(./run.sh:*)": "timeout 60 ./run.sh -v | head",
		"bash(npm test)": "cd a && npm test", "bash(/opt/run)": "cd docs && /opt/run",
		"bash(./a)": "cd . && ./a", "bash(./b)": "cd /ws && ./b",
	} {
		if !allows(rule, line) {
			t.Errorf("%s does not allow %q", rule, line)
		}
	}
}
