package factory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"triphammer/schema"
)

// Runner is runners/<name>.yaml: the machine that a run asks for.
type Runner struct {
	Name, Path    string
	MacOS         bool
	Arch          string // x86_64 or aarch64; empty: any
	DockerImage   string
	SetupCommands []string
	Resources     Resources // of its instanceShape
}

// Resources limit what a run may use; 0 means that the definition states no limit.
type Resources struct {
	Memory    int64 // bytes
	CPUs      float64
	Processes int64
	Disk      int64 // bytes
}

func runner(d *document) *Runner {
	checkRunner(d)
	platform, shape := d.Root.Get("platform"), d.Root.Get("instanceShape")
	r := &Runner{
		Name: d.name, Path: d.Path,
		MacOS:         textOf(platform.Get("os")) == "macos",
		Arch:          textOf(platform.Get("arch")),
		DockerImage:   textOf(platform.Get("linux").Get("dockerImage")),
		SetupCommands: textsOf(d.Root.Get("setupCommands")),
	}
	cpus, _ := numberOf(shape.Get("vcpus"))
	memory, _ := numberOf(shape.Get("memoryGb"))
	r.Resources = Resources{CPUs: min(cpus, maxCPUs), Memory: int64(min(memory, maxMegabytes>>10)) << 30}
	return r
}

// macShapes are the machines of macOS runners: virtual CPUs to gigabytes.
var macShapes = map[int64][]int64{4: {7}, 6: {14}, 8: {14}, 12: {28, 56}}

// checkRunner applies the rules between a runner's keys
// (factory/testdata/rules 1.7).
func checkRunner(d *document) {
	platform := d.Root.Get("platform")
	system := textOf(platform.Get("os"))
	system = cmp.Or(system, "linux")
	own, other := "linux", "mac"
	if system == "macos" {
		own, other = other, own
	}
	if platform.Get(other) != nil {
		d.Error(platform.KeyAt(other), schema.InvalidValue, "take it out, or change os", fmt.Sprintf("platform.%s means nothing with os %s", other, system))
	}
	if system == "linux" && platform.Get(own) == nil {
		at := d.Root.At
		if platform != nil {
			at = platform.At
		}
		d.Error(at, schema.MissingRequired, "add platform: {linux: {dockerImage: IMAGE}}", `key "platform.linux.dockerImage" is missing: a Linux runner needs it`)
	}
	if arch := platform.Get("arch"); system == "macos" && textOf(arch) == "x86_64" {
		d.Error(arch.At, schema.InvalidValue, "macOS runners are aarch64", "platform.arch cannot be x86_64 with os macos")
	}
	checkInstance(d, system)
}

func checkInstance(d *document, system string) {
	shape := d.Root.Get("instanceShape")
	cpus, memory := shape.Get("vcpus"), shape.Get("memoryGb")
	if cpus == nil || memory == nil || cpus.Kind != schema.Int || memory.Kind != schema.Int {
		return
	}
	count, err1 := strconv.ParseInt(cpus.Text, 10, 64)
	size, err2 := strconv.ParseInt(memory.Text, 10, 64)
	if system == "macos" {
		if err1 != nil || err2 != nil || !slices.Contains(macShapes[count], size) {
			d.Error(shape.At, schema.InvalidValue, "4 and 7, 6 and 14, 8 and 14, 12 and 28, or 12 and 56", fmt.Sprintf("no macOS machine has %s vcpus and %s memoryGb", cpus.Text, memory.Text))
		}
		return
	}
	powerOfTwo := func(n int64, err error) bool { return err == nil && n > 0 && n&(n-1) == 0 }
	if !powerOfTwo(count, err1) {
		d.Error(cpus.At, schema.InvalidValue, "1, 2, 4, 8, 16 …", fmt.Sprintf("instanceShape.vcpus is %s where a power of two is expected", cpus.Text))
	}
	if !powerOfTwo(size, err2) {
		d.Error(memory.At, schema.InvalidValue, "1, 2, 4, 8, 16 …", fmt.Sprintf("instanceShape.memoryGb is %s where a power of two is expected", memory.Text))
	}
}
