// Command helm renders a chart as Helm does, with its own library, and prints the objects.
// It is a module of its own, so that Helm is no dependency of the product.
//
//	helm CHART NAMESPACE [--wait] [--set NAME=VALUE]... < VALUES
package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
)

func main() {
	if err := render(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(chart, namespace string, sets []string) error {
	c, err := loader.Load(chart)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	given, err := common.ReadValues(text)
	if err != nil {
		return err
	}
	for _, set := range sets {
		if set == "--set" || set == "--wait" {
			continue
		}
		if err := strvals.ParseInto(set, given); err != nil {
			return err
		}
	}
	options := common.ReleaseOptions{Name: "triphammer", Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValues(c, given, options, common.DefaultCapabilities)
	if err != nil {
		return err
	}
	files, err := engine.Render(c, values)
	if err != nil {
		return err
	}
	var names []string
	for name := range files {
		if path.Ext(name) == ".yaml" {
			names = append(names, name)
		} else if path.Base(name) == "NOTES.txt" && !strings.Contains(files[name], "preflight") {
			return fmt.Errorf("%s: %q", name, files[name])
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("---\n# %s\n%s\n", name, files[name])
	}
	return nil
}
