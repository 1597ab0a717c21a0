{{/* Labels of an object: (list $ NAME COMPONENT). */}}
{{- define "postern.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion }}
app.kubernetes.io/component: {{ index . 2 }}
app.kubernetes.io/part-of: postern
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end }}

{{/* Labels that select the pods of a program: (list NAME). */}}
{{- define "postern.selector" -}}
app.kubernetes.io/name: {{ index . 0 }}
app.kubernetes.io/part-of: postern
{{- end }}

{{/* An image: (list $ PROGRAM). */}}
{{- define "postern.image" -}}
{{- $root := index . 0 -}}
{{ $root.Values.image.registry }}/postern/{{ index . 1 }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end }}

{{/* Where the scheduler puts the pods of a program: its VALUES. */}}
{{- define "postern.placement" -}}
{{- $given := dict -}}
{{- range $member := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with get $ $member }}{{ $_ := set $given $member . }}{{ end -}}
{{- end -}}
{{- with $given }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* The settings of every sidecar as YAML: the key set of this auth server, changed by the values. */}}
{{- define "postern.sidecarSettings" -}}
{{- $settings := .Values.webhook.settings | default dict -}}
{{- $config := .Values.authServer.config -}}
{{- $known := .Files.Lines "files/sidecar_variables.txt" -}}
{{- range $name, $_ := $settings -}}
{{- if not (has $name $known) }}{{ fail (printf "webhook.settings: %s is no setting of the sidecar, or a secret one" $name) }}{{ end -}}
{{- if has $name (list "POSTERN_UPSTREAM" "POSTERN_LISTEN" "POSTERN_ADMIN_LISTEN" "POSTERN_PROBES") }}
{{- fail (printf "webhook.settings: %s follows from ports and probes of each pod" $name) }}
{{- end -}}
{{- end -}}
{{- $scheme := ternary "https" "http" (not (empty .Values.authServer.tlsSecret)) -}}
{{- $server := printf "%s://auth.%s.svc:9000/auth" $scheme .Release.Namespace -}}
{{- $sources := list -}}
{{- range list "POSTERN_AUTH_SERVER" "POSTERN_JWKS" "POSTERN_ISSUER_URL" -}}
{{- if get $settings . }}{{ $sources = append $sources . }}{{ end -}}
{{- end -}}
{{- if gt (len $sources) 1 }}{{ fail (printf "webhook.settings: %s are two sources of keys" (join " and " $sources)) }}{{ end -}}
{{- $hmac := regexMatch "(?m)^\\s*signing-type\\s*=\\s*[\"']hmac" $config -}}
{{- if not $sources -}}
{{- if not .Values.authServer.enabled }}{{ fail "sidecars have no source of keys: set POSTERN_ISSUER_URL or another one in webhook.settings" }}{{ end -}}
{{- range $key, $variable := dict "audience" "POSTERN_AUDIENCE" "issuer" "POSTERN_ISSUER" "context-path" "POSTERN_JWKS" -}}
{{- if and (regexMatch (printf "(?m)^\\s*%s\\s*=" $key) $config) (not (hasKey $settings $variable)) }}
{{- fail (printf "authServer.config has a setting %s of its own: tell it to the sidecars by %s in webhook.settings" $key $variable) }}
{{- end -}}
{{- end -}}
{{- if $hmac }}{{ fail "authServer.config: with hmac there is no key set for sidecars: name the auth server by POSTERN_AUTH_SERVER in webhook.settings" }}{{ end -}}
{{- $settings = merge (dict) $settings (dict "POSTERN_JWKS" (printf "%s/.well-known/jwks.json" $server) "POSTERN_AUDIENCE" .Values.authServer.audience) -}}
{{- else if and .Values.authServer.enabled (contains (printf "//auth.%s.svc" .Release.Namespace) (get $settings "POSTERN_AUTH_SERVER" | toString)) (not (regexMatch "(?m)^\\s*audience\\s*=" $config)) -}}
{{- /* The tokens of this auth server are for its audience, not for the application of each sidecar. */ -}}
{{- $settings = merge (dict) $settings (dict "POSTERN_AUDIENCE" .Values.authServer.audience) -}}
{{- end -}}
{{- /* Its list ends tokens of every issuer. Under another path it has to be named; with hmac a secret verifies it. */ -}}
{{- $unlisted := or $hmac (eq (get $settings "POSTERN_REVOCATIONS" | toString) "off") -}}
{{- if and (not $unlisted) .Values.authServer.enabled (not (get $settings "POSTERN_AUTH_SERVER")) (not (regexMatch "(?m)^\\s*context-path\\s*=" $config)) (not (hasKey $settings "POSTERN_REVOCATIONS_FROM")) -}}
{{- $settings = merge (dict) $settings (dict "POSTERN_REVOCATIONS_FROM" $server) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end }}

{{/* The security of a pod of ours, as in the base. */}}
{{- define "postern.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "postern.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The store's part of a container's variables, mounts and volumes. */}}
{{- define "postern.storeEnv" -}}
- name: POSTERN_STORE
  value: {{ .Values.authServer.store.url | quote }}
- name: POSTERN_STORE_PASSWORD_FILE
  value: /secrets/store/password
{{- end }}

{{/* An object of a file of the kustomize tree, in this release: (list $ FILE NAME COMPONENT). */}}
{{- define "postern.object" -}}
{{- $root := index . 0 -}}
{{- $object := $root.Files.Get (index . 1) | fromYaml -}}
{{- $labels := include "postern.labels" (list $root (index . 2) (index . 3)) | fromYaml -}}
{{- $_ := set $object.metadata "labels" $labels -}}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace -}}
{{- toYaml $object -}}
{{- end }}
