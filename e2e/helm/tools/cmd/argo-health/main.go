// argo-health SCRIPT reads Kubernetes objects as a JSON array and writes, as another one, what Argo CD would show for each:
// the script runs in the interpreter that Argo CD uses, with the object as the global `obj`, and returns its health.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	lua "github.com/yuin/gopher-lua"
)

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "argo-health:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	script, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var objects []any
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return err
	}
	healths := make([]health, 0, len(objects))
	for _, object := range objects {
		one, err := judge(string(script), object)
		if err != nil {
			return err
		}
		healths = append(healths, one)
	}
	return json.NewEncoder(os.Stdout).Encode(healths)
}

func judge(script string, object any) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		state.Push(state.NewFunction(open))
		state.Call(0, 0)
	}
	state.SetGlobal("obj", inLua(state, object))
	if err := state.DoString(script); err != nil {
		return health{}, err
	}
	answer, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return health{}, fmt.Errorf("the script returned %s and no table", state.Get(-1).Type())
	}
	return health{lua.LVAsString(answer.RawGetString("status")), lua.LVAsString(answer.RawGetString("message"))}, nil
}

func inLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	case []any:
		table := state.CreateTable(len(value), 0)
		for _, item := range value {
			table.Append(inLua(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(value))
		for key, item := range value {
			table.RawSetString(key, inLua(state, item))
		}
		return table
	default:
		return lua.LNil
	}
}
