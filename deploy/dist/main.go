// Command dist builds what people install (SPEC 20.1): archives, Debian and RPM packages and
// container images for linux/amd64 and linux/arm64, and the Helm chart, with checksums, a bill of materials and
// the licences of what the program contains. `make dist` runs it.
//
// It is a module of its own, so that the product does not depend on what packs it. The same
// commit gives the same bytes, wherever and whenever it is built: every time in what it
// writes is that of the commit, and no path of the machine is in it.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// dist is one build of everything.
type dist struct {
	root    string // of the product's repository
	out     string
	version string
	time    time.Time // of the commit: the only time that is written
	archs   []string
	images  bool
	work    string // for what is not left in out
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	d := &dist{}
	flags.StringVar(&d.root, "root", "../..", "the repository")
	flags.StringVar(&d.out, "out", "", "the folder for the results (default: dist in the repository)")
	flags.StringVar(&d.version, "version", "", "the version, such as v1.2.0 (default: git describe)")
	archs := flags.String("arch", "amd64,arm64", "for which machines")
	flags.BoolVar(&d.images, "images", true, "make container images too, which takes Debian's packages from its mirror")
	if err := flags.Parse(args); err != nil {
		return err
	}
	d.archs = strings.Split(*archs, ",")
	if err := d.prepare(ctx); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(d.work) }() // the next build uses another one
	return d.build(ctx)
}

// prepare finds the version and the time of the commit, and makes the folders.
func (d *dist) prepare(ctx context.Context) (err error) {
	if d.root, err = filepath.Abs(d.root); err != nil {
		return err
	}
	if d.out == "" {
		d.out = filepath.Join(d.root, "dist")
	}
	if d.out, err = filepath.Abs(d.out); err != nil {
		return err
	}
	if d.version == "" {
		if d.version, err = d.git(ctx, "describe", "--tags", "--always", "--dirty"); err != nil {
			return fmt.Errorf("which version? Give VERSION=…: %w", err)
		}
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		if epoch, err = d.git(ctx, "log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("the time of the commit is unknown: set SOURCE_DATE_EPOCH: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	d.time = time.Unix(seconds, 0).UTC()
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		return err
	}
	d.work, err = os.MkdirTemp("", "triphammer-dist-")
	return err
}

// build makes everything, and the checksums last.
func (d *dist) build(ctx context.Context) error {
	native, err := d.compile(ctx, "", filepath.Join(d.work, "native"))
	if err != nil {
		return err
	}
	generated, err := d.generate(ctx, native)
	if err != nil {
		return err
	}
	modules, err := modulesOf(ctx, d.root, native)
	if err != nil {
		return err
	}
	licences, err := collectLicences(modules)
	if err != nil {
		return err
	}
	bill, err := d.bill(modules)
	if err != nil {
		return err
	}
	var made []string
	keep := func(name string, data []byte) error {
		made = append(made, name)
		return os.WriteFile(filepath.Join(d.out, name), data, 0o644)
	}
	err = errors.Join(keep("triphammer_"+d.version+"_sbom.spdx.json", bill), keep("triphammer_"+d.version+"_licences.txt", licences))
	if err != nil {
		return err
	}
	chart, err := d.chart()
	if err != nil {
		return err
	}
	name := "triphammer-chart_" + d.version + ".tgz"
	made = append(made, name)
	if err := writeFile(filepath.Join(d.out, name), func(w io.Writer) error { return d.archive(w, "triphammer", chart) }); err != nil {
		return err
	}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		errs []error
	)
	for _, arch := range d.archs {
		binary, err := d.compile(ctx, arch, filepath.Join(d.work, arch))
		if err != nil {
			return err
		}
		files := slices.Concat(generated, []file{
			{name: "triphammer", data: binary.data, mode: 0o755, to: "/usr/bin/triphammer"},
			{name: "LICENCES-OF-OTHERS.txt", data: licences, mode: 0o644, to: docFolder + "/LICENCES-OF-OTHERS.txt"},
			{name: "sbom.spdx.json", data: bill, mode: 0o644, to: docFolder + "/sbom.spdx.json"},
		})
		shipped, err := d.shipped()
		if err != nil {
			return err
		}
		files = append(files, shipped...)
		base := "triphammer_" + d.version + "_linux_" + arch
		for name, write := range map[string]func(io.Writer) error{
			base + ".tar.gz": func(w io.Writer) error { return d.archive(w, base, files) },
			base + ".deb":    func(w io.Writer) error { return d.pack(w, "deb", arch, files) },
			base + ".rpm":    func(w io.Writer) error { return d.pack(w, "rpm", arch, files) },
			"triphammer-image_" + d.version + "_linux_" + arch + ".tar": func(w io.Writer) error {
				return d.image(ctx, w, arch, files)
			},
		} {
			if !d.images && strings.HasPrefix(name, "triphammer-image") {
				continue
			}
			wg.Go(func() {
				err := writeFile(filepath.Join(d.out, name), write)
				mu.Lock()
				defer mu.Unlock()
				made = append(made, name)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
				}
			})
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return d.sums(made)
}

// writeFile leaves no half of a file.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".making-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error tells more
	}
	return err
}

// sums writes sha256sums.txt, for `sha256sum --check`, and says what was made.
func (d *dist) sums(names []string) error {
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		f, err := os.Open(filepath.Join(d.out, name))
		if err != nil {
			return err
		}
		sum := sha256.New()
		size, err := io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), name)
		fmt.Printf("%6.1f MB  %s\n", float64(size)/1e6, name)
	}
	return os.WriteFile(filepath.Join(d.out, "sha256sums.txt"), []byte(text.String()), 0o644)
}

func (d *dist) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, d.root, nil, "git", args...)
}

// output runs a program and returns what it prints, without the last newline.
func output(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
