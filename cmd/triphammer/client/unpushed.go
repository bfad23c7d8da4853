package client

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"triphammer/server/api"
	"triphammer/server/terms"
)

// unpushed says what of this folder an apply could not see, because the server reads what was
// pushed: commits and changes here, if the folder is a clone that has the applied commit. It is
// empty otherwise.
func unpushed(ctx context.Context, a api.Apply) string {
	if a.Branch == "" || a.Commit == "" {
		return "" // a working tree serves as it is
	}
	git := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	if _, ok := git("merge-base", "--is-ancestor", a.Commit, "HEAD"); !ok {
		return ""
	}
	var parts []string
	if text, ok := git("rev-list", a.Commit+"..HEAD"); ok && text != "" {
		parts = append(parts, fmt.Sprintf("the branch %s, which the server reads, lacks %s of this clone: push first",
			a.Branch, terms.Counted(len(strings.Fields(text)), "commit")))
	}
	if text, ok := git("status", "--porcelain", "--untracked-files=no"); ok && text != "" {
		parts = append(parts, "this clone has changes in "+terms.Counted(strings.Count(text, "\n")+1, "file")+
			" that are not committed: the server reads what is committed and pushed")
	}
	return strings.Join(parts, "\n")
}
