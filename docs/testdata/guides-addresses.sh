openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=bots.example.com -addext subjectAltName=DNS:bots.example.com -keyout bus.key -out bus.pem
cat >agentbus.yaml <<END
public_url: https://bots.example.com
tls: {cert_file: bus.pem, key_file: bus.key}
agents:
  critic: {kind: builtin, builtin: echo, address: "@critic@bots.example.com"}
END
cat >.curlrc <<END
connect-to = "bots.example.com:443:127.0.0.1:8080"
cacert = bus.pem
silent
write-out = "\n"
END
agentbus serve --quiet
