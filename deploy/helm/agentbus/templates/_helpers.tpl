{{- define "agentbus.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "agentbus.selector" -}}
app.kubernetes.io/name: agentbus
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "agentbus.labels" -}}
{{ include "agentbus.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* What the public port speaks. */}}
{{- define "agentbus.scheme" -}}
{{- if and (hasKey .Values.config "tls") .Values.config.tls }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{/* The pod, for one replica with a volume and for many without. */}}
{{- define "agentbus.pod" -}}
metadata:
  labels:
    {{- include "agentbus.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "agentbus.name" . }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: agentbus
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      env:
        - {name: AGENTBUS_CONFIG, value: /etc/agentbus/agentbus.yaml}
        - {name: GOMEMLIMIT, value: {{ .Values.goMemLimit | quote }}}
        {{- if .Values.admin.tokenSecret.name }}
        - name: AGENTBUS_ADMIN_TOKEN
          valueFrom:
            secretKeyRef:
              {{- toYaml .Values.admin.tokenSecret | nindent 14 }}
        {{- end }}
        {{- if and (eq .Values.store.kind "postgres") .Values.store.postgres.passwordSecret.name }}
        - name: AGENTBUS_STORE_PASSWORD
          valueFrom:
            secretKeyRef:
              {{- toYaml .Values.store.postgres.passwordSecret | nindent 14 }}
        {{- end }}
      {{- with .Values.secrets }}
      envFrom:
        {{- range . }}
        - secretRef: {name: {{ . | quote }}}
        {{- end }}
      {{- end }}
      ports:
        - {name: http, containerPort: 8080}
        {{- if .Values.admin.tokenSecret.name }}
        - {name: admin, containerPort: 8081}
        {{- end }}
      startupProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ include "agentbus.scheme" . }}}
        periodSeconds: 1
        timeoutSeconds: 5
        failureThreshold: 120
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ include "agentbus.scheme" . }}}
        periodSeconds: 5
        timeoutSeconds: 5
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ include "agentbus.scheme" . }}}
        periodSeconds: 10
        timeoutSeconds: 5
      {{- /* A bus that drains takes no connection: it goes on until nobody is sent to it, unless it has less time than that. */}}
      {{- if and (gt (int .Values.terminationGracePeriodSeconds) 5) (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) }}
      lifecycle:
        preStop: {sleep: {seconds: 5}}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/agentbus, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        - {name: data, mountPath: /data}
        {{- range $i, $name := .Values.secretFiles }}
        - {name: secret-{{ $i }}, mountPath: {{ printf "/secrets/%s" $name | quote }}, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "agentbus.name" . }}}
    - name: tmp
      emptyDir: {}
    {{- if eq .Values.store.kind "postgres" }}
    - name: data
      emptyDir: {}
    {{- end }}
    {{- range $i, $name := .Values.secretFiles }}
    - name: secret-{{ $i }}
      secret: {secretName: {{ $name | quote }}, defaultMode: 288} {{- /* 0440 */}}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
