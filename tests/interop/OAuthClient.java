// Google's OAuth client for Java at our token endpoint: {"endpoint", "id", "secret", "scope", "refresh"} on
// stdin; a token for each way to authenticate, those of a refresh and the errors as JSON on stdout.

import com.google.api.client.auth.oauth2.ClientCredentialsTokenRequest;
import com.google.api.client.auth.oauth2.ClientParametersAuthentication;
import com.google.api.client.auth.oauth2.RefreshTokenRequest;
import com.google.api.client.auth.oauth2.TokenErrorResponse;
import com.google.api.client.auth.oauth2.TokenRequest;
import com.google.api.client.auth.oauth2.TokenResponse;
import com.google.api.client.auth.oauth2.TokenResponseException;
import com.google.api.client.http.BasicAuthentication;
import com.google.api.client.http.GenericUrl;
import com.google.api.client.http.HttpExecuteInterceptor;
import com.google.api.client.http.HttpTransport;
import com.google.api.client.http.javanet.NetHttpTransport;
import com.google.api.client.json.JsonFactory;
import com.google.api.client.json.gson.GsonFactory;
import com.google.gson.Gson;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Map;

public class OAuthClient {
    static class Given {
        String endpoint, id, secret, scope, refresh;
    }

    static final HttpTransport TRANSPORT = new NetHttpTransport();
    static final JsonFactory JSON = GsonFactory.getDefaultInstance();

    public static void main(String[] arguments) throws IOException {
        Given given = new Gson().fromJson(new InputStreamReader(System.in), Given.class);
        GenericUrl endpoint = new GenericUrl(given.endpoint);
        TokenResponse basic = granted(endpoint, new BasicAuthentication(given.id, given.secret), given);
        TokenResponse form = granted(endpoint, new ClientParametersAuthentication(given.id, given.secret), given);
        TokenResponse refreshed = refreshed(endpoint, given.refresh).execute();
        TokenResponse next = refreshed(endpoint, refreshed.getRefreshToken()).execute();
        Map<String, Object> result = Map.of(
            "tokens", List.of(basic.getAccessToken(), form.getAccessToken()),
            "scope", basic.getScope(),
            "expires_in", basic.getExpiresInSeconds(),
            "refreshed", next.getAccessToken(),
            "reused", error(refreshed(endpoint, given.refresh)),
            "rejection", error(request(endpoint, new BasicAuthentication(given.id, "wrong"), given)));
        System.out.println(new Gson().toJson(result));
    }

    static TokenResponse granted(
            GenericUrl endpoint, HttpExecuteInterceptor authentication, Given given)
            throws IOException {
        return request(endpoint, authentication, given).execute();
    }

    static TokenRequest request(
            GenericUrl endpoint, HttpExecuteInterceptor authentication, Given given) {
        return new ClientCredentialsTokenRequest(TRANSPORT, JSON, endpoint)
            .setClientAuthentication(authentication)
            .setScopes(List.of(given.scope));
    }

    static TokenRequest refreshed(GenericUrl endpoint, String token) {
        return new RefreshTokenRequest(TRANSPORT, JSON, endpoint, token);
    }

    static String error(TokenRequest request) throws IOException {
        try {
            request.execute();
            return "none";
        } catch (TokenResponseException rejected) {
            // Java's own connection withholds the body of a 401.
            TokenErrorResponse details = rejected.getDetails();
            return rejected.getStatusCode() + (details == null ? "" : " " + details.getError());
        }
    }
}
