openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout bus.key -out bus.pem
