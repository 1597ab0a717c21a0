import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

/**
 * A small HTTP service that knows nothing of authentication: it says who calls and what was asked
 * for, as JSON. Nothing but the JDK; what a JSON library would take apart is handed on as it is.
 *
 * <p>{@code java Service.java [ADDRESS:PORT]} (127.0.0.1:0 or nothing: a free port)
 */
public final class Service {

    /** The user the sidecar vouches for, as JSON; null where a path needs no login. */
    static String currentUser(HttpExchange exchange) {
        return exchange.getRequestHeaders().getFirst("X-Current-User");
    }

    static void answer(HttpExchange exchange) throws IOException {
        exchange.getRequestBody().readAllBytes();
        String json = "{\"service\": \"java\", \"method\": \"" + exchange.getRequestMethod()
            + "\", \"path\": \"" + exchange.getRequestURI()
            + "\", \"user\": " + currentUser(exchange) + "}";
        byte[] body = json.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        String[] address = (arguments.length > 0 ? arguments[0] : "127.0.0.1:0").split(":");
        InetSocketAddress socket = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
        HttpServer server = HttpServer.create(socket, 0);
        server.createContext("/", Service::answer);
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
        System.out.println("listening on " + address[0] + ":" + server.getAddress().getPort());
    }
}
