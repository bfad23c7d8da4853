//go:build full

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestShells: bash, zsh and fish, with the scripts that the program prints for them, complete
// the name of a webhook that a running server has.
func TestShells(t *testing.T) {
	w := completionWorld(t)
	for shell, asks := range map[string][]string{
		"fish": {"fish", "--no-config", "-c", `source SCRIPT; complete -C 'triphammer webhooks show '`},
		"bash": {"bash", "--norc", "-c", `
			source /usr/share/bash-completion/bash_completion
			source SCRIPT
			COMP_LINE='triphammer webhooks show ' COMP_WORDS=(triphammer webhooks show '') COMP_CWORD=3 COMP_TYPE=9 COMP_KEY=9
			COMP_POINT=${#COMP_LINE}
			read -ra spec <<< "$(complete -p triphammer)"
			for i in "${!spec[@]}"; do [ "${spec[i]}" = -F ] && function=${spec[i+1]}; done
			$function triphammer '' show
			printf '%s\n' "${COMPREPLY[@]}"`},
		// What offers words works in the line editor alone, so here it prints them.
		"zsh": {"zsh", "-f", "-c", `
			autoload -Uz compinit && compinit -D -u
			source SCRIPT
			_describe() {
				while [[ $1 = -* ]]; do shift; done
				local -a offered=("${(@P)2}")
				print -rl -- "${offered[@]%%:*}"
			}
			words=(triphammer webhooks show '') CURRENT=4
			$_comps[triphammer]`},
	} {
		t.Run(shell, func(t *testing.T) {
			script := filepath.Join(w.dir, "complete."+shell)
			if err := os.WriteFile(script, []byte(w.run("", "completion", shell)), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, asks[0], append(asks[1:len(asks)-1:len(asks)-1], strings.ReplaceAll(asks[len(asks)-1], "SCRIPT", script))...)
			cmd.Dir, cmd.Env = w.dir, w.command().Env
			cmd.WaitDelay = time.Second // a program that a shell leaves behind has the output, too
			out, err := cmd.CombinedOutput()
			if ctx.Err() != nil {
				t.Fatalf("%s has not ended within a minute; it printed\n%s", shell, out)
			}
			if err != nil || !regexp.MustCompile(`(?m)^ci(\s|$)`).Match(out) {
				t.Errorf("%v: it offered\n%s", err, out)
			}
		})
	}
}
