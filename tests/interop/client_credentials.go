// The client of golang.org/x/oauth2 at our token endpoint: {"endpoint", "id", "secret", "scope"} on stdin,
// a token for each style and the error of a wrong secret as JSON on stdout.
package main

import (
	"context"
	"encoding/json"
	"os"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

func main() {
	var given struct{ Endpoint, Id, Secret, Scope string }
	check(json.NewDecoder(os.Stdin).Decode(&given))
	config := clientcredentials.Config{
		ClientID:     given.Id,
		ClientSecret: given.Secret,
		TokenURL:     given.Endpoint,
		Scopes:       []string{given.Scope},
	}
	var tokens []string
	for _, style := range []oauth2.AuthStyle{
		oauth2.AuthStyleAutoDetect, oauth2.AuthStyleInHeader, oauth2.AuthStyleInParams,
	} {
		config.AuthStyle = style
		token, err := config.Token(context.Background())
		check(err)
		tokens = append(tokens, token.AccessToken)
	}
	config.ClientSecret = "wrong"
	_, err := config.Token(context.Background())
	rejection := err.(*oauth2.RetrieveError)
	check(json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"tokens":  tokens,
		"rejection": rejection.Response.Status,
	}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
