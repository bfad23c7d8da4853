//go:build supervisor

package executor

import _ "embed"

//go:embed supervisor.gz
var supervisorProgram []byte

func init() { packedSupervisor = supervisorProgram }
