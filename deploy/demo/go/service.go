// A small HTTP service that knows nothing of authentication: it says who calls and what was asked
// for, as JSON. Nothing but Go's standard library.
//
//	go run service.go [ADDRESS:PORT]      (127.0.0.1:0 or nothing: a free port)
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

type User struct {
	ID       string `json:"id"`
	Account  string `json:"account"`
	NickName string `json:"nickName"`
	UserType string `json:"userType"`
}

// The user the sidecar vouches for; nil where a path needs no login.
func currentUser(request *http.Request) (user *User, err error) {
	if header := request.Header.Get("X-Current-User"); header != "" {
		err = json.Unmarshal([]byte(header), &user)
	}
	return user, err
}

func answer(response http.ResponseWriter, request *http.Request) {
	user, err := currentUser(request)
	if err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(map[string]any{
		"service": "go",
		"method":  request.Method,
		"path":    request.RequestURI,
		"user":    user,
	})
}

func main() {
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	log.Fatal(http.Serve(listener, http.HandlerFunc(answer)))
}
