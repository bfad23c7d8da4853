package host

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// resealSecrets seals every secret in a data directory with a new key.
func resealSecrets(c *cobra.Command, dir string) error {
	if dir == "" {
		return exit.With(exit.Usage, "which data directory? Give --data DIR (or TRIPHAMMER_DATA)")
	}
	in, err := openInstance(c.Context(), dir, instanceOptions{impatient: true})
	if err != nil {
		return stopFirst(err)
	}
	defer func() { _ = in.close() }()
	keyFile := keyFileOf(in.dir)
	key, err := secret.CreateNextKey(keyFile)
	if err != nil {
		return exit.With(exit.Usage, "making the new key: %w", err)
	}
	count, err := in.store.Secrets.Reseal(c.Context(), key)
	if errors.Is(err, store.ErrOthers) {
		return exit.With(exit.Conflict, "%w", errors.Join(err, os.Remove(secret.NextKeyFile(keyFile))))
	}
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	if err := secret.TakeNextKey(keyFile); err != nil {
		return exit.With(exit.Usage, "the secrets are sealed with the key in %s, which could not be put in the place of %s: %w",
			secret.NextKeyFile(keyFile), keyFile, err)
	}
	err = in.store.Audit.Add(c.Context(), store.AuditEntry{Actor: "local " + client.UserName(), Action: "secret.reseal", Object: "all", Origin: "local"})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%d values are sealed with the new key in %s\n", count, keyFile)
	return err
}

var variablePrefix = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// secretSources are the sources of managed secrets besides the store.
func secretSources(dir, prefix string) ([]secret.Source, error) {
	var all []secret.Source
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, exit.With(exit.Usage, "--secrets-dir %s is no folder that can be read", dir)
		}
		all = append(all, secret.Dir(dir))
	}
	if prefix != "" && !variablePrefix.MatchString(prefix) {
		return nil, exit.With(exit.Usage, "--secrets-env %q begins no variable's name: letters, digits and _, such as HAMMER_SECRET_", prefix)
	}
	if prefix != "" {
		all = append(all, secret.Environment(prefix))
	}
	return all, nil
}
