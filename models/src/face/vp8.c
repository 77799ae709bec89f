/* The few calls of libvpx that the pose cache needs. The structures of libvpx differ between its versions, so they stay on this side. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <vpx/vp8cx.h>
#include <vpx/vp8dx.h>
#include <vpx/vpx_decoder.h>
#include <vpx/vpx_encoder.h>

struct visavis_vp8_encoder {
    vpx_codec_ctx_t codec;
    vpx_codec_enc_cfg_t config;
    unsigned width, height, count;
};

struct visavis_vp8_encoder *visavis_vp8_encoder_new(unsigned width, unsigned height) {
    struct visavis_vp8_encoder *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->width = width;
    e->height = height;
    vpx_codec_enc_cfg_t *c = &e->config;
    if (vpx_codec_enc_config_default(vpx_codec_vp8_cx(), c, 0)) goto failed;
    c->g_w = width;
    c->g_h = height;
    c->g_threads = 1;
    c->g_timebase.num = 1;
    c->g_timebase.den = 25;
    c->g_lag_in_frames = 0;
    c->g_error_resilient = VPX_ERROR_RESILIENT_DEFAULT;
    c->rc_end_usage = VPX_VBR;
    c->rc_target_bitrate = 20000;
    c->rc_dropframe_thresh = 0;
    c->rc_resize_allowed = 0;
    c->rc_min_quantizer = c->rc_max_quantizer = 8;
    c->kf_mode = VPX_KF_DISABLED;
    if (vpx_codec_enc_init(&e->codec, vpx_codec_vp8_cx(), c, 0)) goto failed;
    vpx_codec_control(&e->codec, VP8E_SET_CPUUSED, 1);
    vpx_codec_control(&e->codec, VP8E_SET_NOISE_SENSITIVITY, 0);
    vpx_codec_control(&e->codec, VP8E_SET_STATIC_THRESHOLD, 0);
    vpx_codec_control(&e->codec, VP8E_SET_TOKEN_PARTITIONS, VP8_ONE_TOKENPARTITION);
    return e;
failed:
    free(e);
    return NULL;
}

/* What a frame refers to, and what it replaces. */
enum visavis_vp8_kind { KEY, ANCHOR, POSE, ANCHORED_POSE };

static vpx_enc_frame_flags_t flags(int kind) {
    vpx_enc_frame_flags_t pose = VP8_EFLAG_NO_REF_LAST | VP8_EFLAG_NO_UPD_LAST | VP8_EFLAG_NO_UPD_GF | VP8_EFLAG_NO_UPD_ENTROPY;
    switch (kind) {
    case KEY: return VPX_EFLAG_FORCE_KF;
    case ANCHOR: return pose | VP8_EFLAG_NO_REF_ARF;
    case POSE: return pose | VP8_EFLAG_NO_REF_ARF | VP8_EFLAG_NO_UPD_ARF;
    default: return pose | VP8_EFLAG_NO_REF_GF | VP8_EFLAG_NO_UPD_ARF;
    }
}

/* Encodes one I420 picture (planes without gaps). Returns its length and sets *data, valid until the next call; a negative libvpx code otherwise. */
long visavis_vp8_encode(struct visavis_vp8_encoder *e, const uint8_t *i420, int kind, unsigned quantizer, const uint8_t *active,
                        const uint8_t **data) {
    int error;
    e->config.rc_min_quantizer = e->config.rc_max_quantizer = quantizer;
    if ((error = vpx_codec_enc_config_set(&e->codec, &e->config))) return -error;
    vpx_active_map_t map = {(unsigned char *)active, (e->height + 15) / 16, (e->width + 15) / 16};
    if ((error = vpx_codec_control(&e->codec, VP8E_SET_ACTIVEMAP, &map))) return -error;
    vpx_image_t image;
    if (!vpx_img_wrap(&image, VPX_IMG_FMT_I420, e->width, e->height, 1, (unsigned char *)i420)) return -VPX_CODEC_MEM_ERROR;
    if ((error = vpx_codec_encode(&e->codec, &image, e->count++, 1, flags(kind), VPX_DL_GOOD_QUALITY))) return -error;
    vpx_codec_iter_t iterator = NULL;
    const vpx_codec_cx_pkt_t *packet;
    while ((packet = vpx_codec_get_cx_data(&e->codec, &iterator))) {
        if (packet->kind != VPX_CODEC_CX_FRAME_PKT) continue;
        *data = packet->data.frame.buf;
        return (long)packet->data.frame.sz;
    }
    return -VPX_CODEC_ERROR;
}

void visavis_vp8_encoder_free(struct visavis_vp8_encoder *e) {
    vpx_codec_destroy(&e->codec);
    free(e);
}

vpx_codec_ctx_t *visavis_vp8_decoder_new(void) {
    vpx_codec_ctx_t *d = calloc(1, sizeof *d);
    if (d && vpx_codec_dec_init(d, vpx_codec_vp8_dx(), NULL, 0)) {
        free(d);
        return NULL;
    }
    return d;
}

/* Decodes one frame into `i420`, which holds width × height × 3 / 2 bytes. 0, or a libvpx code. */
int visavis_vp8_decode(vpx_codec_ctx_t *d, const uint8_t *data, size_t length, uint8_t *i420, unsigned width, unsigned height) {
    int error = vpx_codec_decode(d, data, (unsigned)length, NULL, 0);
    if (error) return error;
    vpx_codec_iter_t iterator = NULL;
    vpx_image_t *image = vpx_codec_get_frame(d, &iterator);
    if (!image || image->d_w != width || image->d_h != height) return VPX_CODEC_ERROR;
    for (int plane = 0; plane < 3; plane++) {
        unsigned w = plane ? width / 2 : width, h = plane ? height / 2 : height;
        for (unsigned y = 0; y < h; y++, i420 += w) memcpy(i420, image->planes[plane] + (size_t)y * image->stride[plane], w);
    }
    return 0;
}

void visavis_vp8_decoder_free(vpx_codec_ctx_t *d) {
    vpx_codec_destroy(d);
    free(d);
}
