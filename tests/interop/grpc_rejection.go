// One call of grpc-go that does not reach a service: {"address", "authorization"} on stdin, code and
// message as JSON on stdout.
package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// bytesCodec sends bytes as they are: the service needs no schema.
type bytesCodec struct{}

func (bytesCodec) Marshal(v interface{}) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v interface{}) error { *v.(*[]byte) = data; return nil }
func (bytesCodec) Name() string                               { return "proto" }

func main() {
	var given struct{ Address, Authorization string }
	check(json.NewDecoder(os.Stdin).Decode(&given))
	connection, err := grpc.Dial(given.Address, grpc.WithInsecure())
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if given.Authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", given.Authorization)
	}
	var answer []byte
	err = connection.Invoke(ctx, "/echo.Echo/Unary", []byte("hello"), &answer, grpc.ForceCodec(bytesCodec{}))
	call := status.Convert(err)
	check(json.NewEncoder(os.Stdout).Encode([]string{call.Code().String(), call.Message()}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
