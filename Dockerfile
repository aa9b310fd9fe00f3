# Tunedeck beside a ROCm PyTorch: the image's own Python (torch, ROCm) is the training environment, the dashboard has its own.
# Not built on our machines (no container engine there): the steps are those of scripts/setup.
FROM rocm/pytorch:rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.7.1

ENV PIP_NO_CACHE_DIR=1 DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv g++ && rm -rf /var/lib/apt/lists/*

# Training packages into the image's Python, without touching its torch. Never amdsmi from PyPI here: it breaks `import torch` on ROCm.
COPY requirements-training.txt requirements-training-nodeps.txt /tmp/
RUN python3 -m pip install -r /tmp/requirements-training.txt \
 && python3 -m pip install --no-deps -r /tmp/requirements-training-nodeps.txt \
 && DS_BUILD_OPS=0 python3 -m pip install --no-build-isolation --no-deps deepspeed==0.19.8

WORKDIR /opt/tunedeck
COPY requirements.txt ./
RUN python3 -m venv .venv && .venv/bin/pip install -r requirements.txt
COPY . .

ENV TUNEDECK_DATA=/data
VOLUME /data
EXPOSE 7860
# Loopback only, as everywhere: see compose.yaml for how to publish it with a login.
ENTRYPOINT ["sh", "-c", "TUNEDECK_TRAINING_PYTHON=$(command -v python3) exec .venv/bin/python app.py serve \"$@\"", "tunedeck"]
