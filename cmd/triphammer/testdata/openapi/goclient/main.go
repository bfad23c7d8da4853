// Command goclient drives a server with the client that oapi-codegen makes of
// openapi.yaml.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"goclient/api"
)

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := api.NewClientWithResponses(os.Getenv("BASE_URL"), api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))
		return nil
	}))
	check(err)
	key, title, environment, prompt := "two", "Hello", "quick", "Say hello."
	made, err := client.PostAgentRunsWithResponse(ctx, &api.PostAgentRunsParams{IdempotencyKey: &key},
		api.PostAgentRunsJSONRequestBody{Prompt: &prompt, Title: &title, Config: &api.CreateConfig{EnvironmentId: &environment}})
	check(err)
	if made.JSON200 == nil {
		log.Fatalf("create: %s", made.Body)
	}
	id, state := made.JSON200.RunId, ""
	for state != "SUCCEEDED" && state != "FAILED" && state != "CANCELLED" {
		read, err := client.GetAgentRunsIdWithResponse(ctx, id)
		check(err)
		if read.JSON200 == nil {
			log.Fatalf("read: %s", read.Body)
		}
		state = string(read.JSON200.State)
	}
	states, limit, by := []string{"SUCCEEDED", "FAILED"}, 1, api.GetAgentRunsParamsSortByCreatedAt
	listed, err := client.GetAgentRunsWithResponse(ctx, &api.GetAgentRunsParams{Limit: &limit, State: &states, SortBy: &by})
	check(err)
	if listed.JSON200 == nil || len(listed.JSON200.Runs) != 1 || listed.JSON200.Runs[0].RunId != id {
		log.Fatalf("list: %s", listed.Body)
	}
	schedule, err := client.PostAgentSchedulesWithResponse(ctx, api.PostAgentSchedulesJSONRequestBody{Name: "Nightly", CronSchedule: "@daily", Prompt: &prompt})
	check(err)
	if schedule.JSON201 == nil {
		log.Fatalf("schedule: %s", schedule.Body)
	}
	gone, err := client.DeleteAgentSchedulesIdWithResponse(ctx, schedule.JSON201.Id)
	check(err)
	if gone.JSON200 == nil || !gone.JSON200.Success {
		log.Fatalf("delete: %s", gone.Body)
	}
	refused, err := client.GetAgentRunsIdWithResponse(ctx, "run_0000000000001")
	check(err)
	if refused.ApplicationproblemJSON404 == nil || refused.ApplicationproblemJSON404.Status != http.StatusNotFound {
		log.Fatalf("not found: %s", refused.Body)
	}
	fmt.Println(state, id)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
