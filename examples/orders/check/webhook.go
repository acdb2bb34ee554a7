package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// webhookTime bounds a call.
const webhookTime = 5 * time.Second

// Webhook returns what posts an alert to a URL, as the JSON {"type": "stock", "text": ...}.
func Webhook(url string) func(ctx context.Context, text string) error {
	return func(ctx context.Context, text string) error {
		ctx, cancel := context.WithTimeout(ctx, webhookTime)
		defer cancel()
		body, err := json.Marshal(map[string]string{"type": "stock", "text": text})
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode/100 != 2 {
			return fmt.Errorf("the webhook answers with %s", response.Status)
		}
		return nil
	}
}
